// The acl runtime: start, devices and contexts, memory and copies.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/acl.h"

namespace hccl::testing {
namespace {

// ---- Start, devices, contexts ----

TEST(AclInit, CountsAndForgivesFinalize) {
  std::uint64_t left = 7;
  EXPECT_EQ(aclFinalize(), ACL_SUCCESS);
  EXPECT_EQ(aclFinalizeReference(&left), ACL_SUCCESS);
  EXPECT_EQ(left, 0u);
  EXPECT_EQ(aclInit(nullptr), ACL_SUCCESS);
  EXPECT_EQ(aclInit(nullptr), ACL_ERROR_REPEAT_INITIALIZE);
  EXPECT_EQ(aclInit(nullptr), ACL_ERROR_REPEAT_INITIALIZE);
  EXPECT_EQ(aclFinalizeReference(&left), ACL_SUCCESS);
  EXPECT_EQ(left, 2u);
  EXPECT_EQ(aclFinalizeReference(nullptr), ACL_SUCCESS);
  EXPECT_EQ(aclFinalizeReference(&left), ACL_SUCCESS);
  EXPECT_EQ(left, 0u);
  EXPECT_EQ(aclInit(nullptr), ACL_SUCCESS);
  EXPECT_EQ(aclInit(nullptr), ACL_ERROR_REPEAT_INITIALIZE);
  EXPECT_EQ(aclFinalize(), ACL_SUCCESS);
  EXPECT_EQ(aclInit(nullptr), ACL_SUCCESS);
  EXPECT_EQ(aclFinalize(), ACL_SUCCESS);
}

TEST(AclInit, KnowsTheHost) {
  EXPECT_STREQ(aclrtGetSocName(), "Ascend910");
  aclrtRunMode mode = ACL_DEVICE;
  OK(aclrtGetRunMode(&mode));
  EXPECT_EQ(mode, ACL_HOST);
  std::uint32_t devices = 0;
  OK(aclrtGetDeviceCount(&devices));
  EXPECT_EQ(devices, std::max(16u, std::thread::hardware_concurrency()));
  std::int32_t number[3] = {};
  OK(aclrtGetVersion(&number[0], &number[1], &number[2]));
  EXPECT_EQ(number[0], ACL_MAJOR_VERSION);
  OK(aclrtSetDeviceSatMode(ACL_RT_OVERFLOW_MODE_INFNAN));
  aclrtFloatOverflowMode overflow = ACL_RT_OVERFLOW_MODE_UNDEF;
  OK(aclrtGetDeviceSatMode(&overflow));
  EXPECT_EQ(overflow, ACL_RT_OVERFLOW_MODE_INFNAN);
  std::int32_t reaches = 0;
  OK(aclrtDeviceCanAccessPeer(&reaches, 0, 1));
  EXPECT_EQ(reaches, 1);
}

TEST(AclDevice, IsTheThreadsAndCounted) {
  const auto current = [] {
    std::int32_t device = -1;
    return aclrtGetDevice(&device) == ACL_SUCCESS ? device : -1;
  };
  OK(aclrtSetDevice(3));
  EXPECT_EQ(current(), 3);
  std::thread([&] {
    EXPECT_EQ(current(), -1);
    OK(aclrtSetDevice(3));
    OK(aclrtSetDevice(4));
    EXPECT_EQ(current(), 4);
    OK(aclrtResetDevice(4));
    EXPECT_EQ(current(), -1);
    EXPECT_EQ(aclrtResetDevice(4), ACL_ERROR_RT_CONTEXT_NULL);
    OK(aclrtResetDevice(3));
  }).join();
  EXPECT_EQ(current(), 3);  // the other thread has reset only its own device
  OK(aclrtResetDevice(3));
  EXPECT_EQ(current(), -1);
  OK(aclrtSetDevice(3));
  OK(aclrtSetDevice(3));
  OK(aclrtResetDeviceForce(3));
  EXPECT_EQ(current(), -1);
}

TEST(AclDevice, HasContexts) {
  OK(aclrtSetDevice(2));
  aclrtContext standard = nullptr;
  aclrtContext own = nullptr;
  aclrtContext current = nullptr;
  std::int32_t device = -1;
  OK(aclrtGetCurrentContext(&standard));
  EXPECT_EQ(aclrtDestroyContext(standard), ACL_ERROR_RT_PARAM_INVALID);
  OK(aclrtCreateContext(&own, 5));
  OK(aclrtGetCurrentContext(&current));
  EXPECT_EQ(current, own);
  OK(aclrtGetDevice(&device));
  EXPECT_EQ(device, 5);
  std::thread([&] {
    OK(aclrtSetCurrentContext(own));
    OK(aclrtGetDevice(&device));
    EXPECT_EQ(device, 5);
  }).join();
  OK(aclrtSetCurrentContext(standard));
  OK(aclrtGetDevice(&device));
  EXPECT_EQ(device, 2);
  OK(aclrtSetCurrentContext(own));
  OK(aclrtDestroyContext(own));
  EXPECT_EQ(aclrtGetDevice(&device), ACL_ERROR_RT_CONTEXT_NULL);
  OK(aclrtResetDevice(2));
  EXPECT_EQ(aclrtSetCurrentContext(standard), ACL_ERROR_RT_INVALID_HANDLE);
}

TEST(AclDevice, SynchronizesItsStreams) {
  std::atomic<int> calls{0};
  Gate gate;
  aclrtStream mine = nullptr;
  aclrtStream foreign = nullptr;
  OK(aclrtSetDevice(7));
  OK(aclrtCreateStream(&foreign));
  OK(aclrtSetDevice(6));
  OK(aclrtCreateStream(&mine));
  const auto call = [](void* counter) { ++*static_cast<std::atomic<int>*>(counter); };
  for (int i = 0; i < 100; ++i) OK(aclrtLaunchHostFunc(mine, call, &calls));
  OK(aclrtLaunchHostFunc(foreign, Gate::pass, &gate));
  OK(aclrtSynchronizeDevice());  // would hang if it waited for the stream of device 7
  EXPECT_EQ(calls, 100);
  OK(aclrtSetDevice(7));
  EXPECT_EQ(aclrtSynchronizeDeviceWithTimeout(1), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
  gate.release();
  OK(aclrtSynchronizeDeviceWithTimeout(-1));
  OK(aclrtDestroyStream(mine));
  OK(aclrtDestroyStream(foreign));
  for (const int device : {6, 7, 7}) OK(aclrtResetDevice(device));
}

// ---- Memory ----

TEST(AclMemory, IsAlignedAndUsable) {
  std::size_t before = 0;
  std::size_t total = 0;
  std::size_t now = 0;
  OK(aclrtSetDevice(0));
  OK(aclrtGetMemInfo(ACL_HBM_MEM_HUGE, &before, &total));
  EXPECT_GT(before, 0u);
  EXPECT_GE(total, before);
  std::vector<char*> all;
  std::vector<std::size_t> room;
  for (const std::size_t size : {1, 31, 32, 33, 4096, 5000000}) {
    for (const auto policy : {ACL_MEM_MALLOC_HUGE_ONLY, ACL_MEM_MALLOC_NORMAL_ONLY}) {
      void* memory = nullptr;
      OK(aclrtMalloc(&memory, size, policy));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 64, 0u);
      all.push_back(static_cast<char*>(memory));
      room.push_back((size + 31) / 32 * 32 + 32);
    }
  }
  OK(aclrtGetMemInfo(ACL_HBM_MEM_HUGE, &now, &total));
  EXPECT_LE(now, before - 2 * 5000000);
  for (std::size_t i = 0; i < all.size(); ++i)
    std::memset(all[i], 'a' + static_cast<int>(i), room[i]);
  for (std::size_t i = 0; i < all.size(); ++i) {  // no block overlaps another
    const char letter = static_cast<char>('a' + i);
    EXPECT_EQ(std::count(all[i], all[i] + room[i], letter), static_cast<std::ptrdiff_t>(room[i]));
    OK(aclrtFree(all[i]));
    EXPECT_EQ(aclrtFree(all[i]), ACL_ERROR_RT_PARAM_INVALID);
  }
  OK(aclrtGetMemInfo(ACL_DDR_MEM, &now, &total));
  EXPECT_EQ(now, before);
  OK(aclrtGetMemInfo(ACL_HBM_MEM_HUGE1G, &now, &total));
  EXPECT_EQ(now + total, 0u);
  OK(aclrtResetDevice(0));
}

TEST(AclMemory, OfTheHostIsItsOwn) {
  void* host = nullptr;
  void* device = nullptr;
  OK(aclrtMallocHost(&host, 100));
  OK(aclrtMallocAlign32(&device, 100, ACL_MEM_MALLOC_HUGE_FIRST));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(host) % 64, 0u);
  EXPECT_EQ(aclrtFree(host), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtFreeHost(device), ACL_ERROR_RT_PARAM_INVALID);
  OK(aclrtFree(device));
  OK(aclrtFreeHost(host));
  EXPECT_EQ(aclrtFreeHost(host), ACL_ERROR_RT_PARAM_INVALID);
}

// The first byte and size of the block that contains the address; null and 0 if none does.
std::pair<void*, std::size_t> block_of(const void* memory) {
  void* base = nullptr;
  std::size_t bytes = 0;
  const aclError found = aclrtMemGetAddressRange(const_cast<void*>(memory), &base, &bytes);
  EXPECT_EQ(found, base != nullptr ? ACL_SUCCESS : ACL_ERROR_RT_PARAM_INVALID);
  return {base, bytes};
}

TEST(AclMemory, KnowsTheBlockOfAnAddress) {
  void* device = nullptr;
  void* host = nullptr;
  void* reserved = nullptr;
  aclrtDrvMemHandle physical = nullptr;
  auto prop = device_prop();
  OK(aclrtMallocAlign32(&device, 4096, ACL_MEM_MALLOC_HUGE_FIRST));
  OK(aclrtMallocHost(&host, 100));
  OK(aclrtReserveMemAddress(&reserved, 4 * kGranule, 0, nullptr, 0));
  char* const mapped = static_cast<char*>(reserved) + kGranule;
  OK(aclrtMallocPhysical(&physical, 2 * kGranule, &prop, 0));
  OK(aclrtMapMem(mapped, 2 * kGranule, 0, physical, 0));
  const std::pair<void*, std::size_t> blocks[] = {
      {device, 4096}, {host, 100}, {mapped, 2 * kGranule}};
  const std::pair<void*, std::size_t> none{nullptr, 0};
  for (const auto& block : blocks) {
    const auto* const first = static_cast<char*>(block.first);
    for (const std::size_t at : {std::size_t{0}, block.second / 2, block.second - 1}) {
      EXPECT_EQ(block_of(first + at), block) << at << " of " << block.second;
    }
  }
  EXPECT_EQ(block_of(mapped - 1), none);
  EXPECT_EQ(block_of(mapped + 2 * kGranule), none);
  EXPECT_EQ(block_of(&device), none);
  OK(aclrtUnmapMem(mapped));
  OK(aclrtFreePhysical(physical));
  OK(aclrtReleaseMemAddress(reserved));
  OK(aclrtFree(device));
  OK(aclrtFreeHost(host));
  for (const auto& block : blocks) EXPECT_EQ(block_of(block.first), none);
}

TEST(AclMemory, RegistersTheProgramsMemory) {
  constexpr auto kAlready = ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  constexpr auto kNot = ACL_ERROR_HOST_MEMORY_NOT_REGISTERED;
  std::vector<char> memory(100);
  char* const at = memory.data();
  void* address = nullptr;
  OK(aclrtHostRegisterV2(at + 10, 20, ACL_HOST_REG_MAPPED | ACL_HOST_REG_PINNED));
  OK(aclrtHostRegisterV2(at + 30, 20, ACL_HOST_REG_PINNED));
  EXPECT_EQ(aclrtHostRegister(at, 10, ACL_HOST_REGISTER_MAPPED, &address), ACL_SUCCESS);
  EXPECT_EQ(address, at);
  for (const auto& [first, bytes] : {std::pair(10, 20), {0, 100}, {29, 1}, {9, 2}, {49, 51}}) {
    EXPECT_EQ(
        aclrtHostRegisterV2(at + first, static_cast<std::uint64_t>(bytes), ACL_HOST_REG_MAPPED),
        kAlready)
        << first << " " << bytes;
  }
  for (const int inside : {0, 9, 10, 29}) {
    OK(aclrtHostGetDevicePointer(at + inside, &address, 0));
    EXPECT_EQ(address, at + inside);
  }
  for (const int outside : {30, 49, 50}) {
    EXPECT_EQ(aclrtHostGetDevicePointer(at + outside, &address, 0), kNot) << outside;
  }
  EXPECT_EQ(aclrtHostUnregister(at + 11), kNot);
  OK(aclrtHostUnregister(at + 10));
  EXPECT_EQ(aclrtHostUnregister(at + 10), kNot);
  EXPECT_EQ(aclrtHostGetDevicePointer(at + 10, &address, 0), kNot);
  OK(aclrtHostUnregister(at + 30));
  OK(aclrtHostUnregister(at));
  OK(aclrtMallocHost(&address, 64));
  auto* const half = static_cast<char*>(address) + 32;
  OK(aclrtHostRegisterV2(address, 32, ACL_HOST_REG_MAPPED));
  OK(aclrtHostRegisterV2(half, 32, ACL_HOST_REG_MAPPED));
  OK(aclrtFreeHost(address));
  EXPECT_EQ(aclrtHostUnregister(address), kNot);
  EXPECT_EQ(aclrtHostUnregister(half), kNot);
}

// Runs in a forked process: imports the memory, checks its numbers, and adds one to each.
int import_and_add(const char* key, const std::vector<std::uint32_t>& expected) {
  void* mapped = nullptr;
  void* again = nullptr;
  // If this process lacks descriptors, the error does not blame the key.
  rlimit limit{};
  if (aclrtMalloc(&again, 1, ACL_MEM_MALLOC_HUGE_FIRST) != 0) return 6;
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit none{0, limit.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  const aclError lacks = aclrtIpcMemImportByKey(&mapped, key, 0);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (lacks != ACL_ERROR_RT_INTERNAL_ERROR) return 7;
  if (aclrtIpcMemImportByKey(&mapped, key, ACL_RT_IPC_MEM_IMPORT_FLAG_ENABLE_PEER_ACCESS) != 0) {
    return 1;
  }
  auto* const numbers = static_cast<std::uint32_t*>(mapped);
  if (!std::equal(expected.begin(), expected.end(), numbers)) return 2;
  for (std::size_t i = 0; i < expected.size(); ++i) ++numbers[i];
  if (aclrtIpcMemImportByKey(&again, key, 0) != 0 || again != mapped) return 3;
  if (aclrtIpcMemClose(key) != 0 || aclrtIpcMemClose(key) != 0) return 4;
  return aclrtIpcMemClose(key) == ACL_ERROR_RT_PARAM_INVALID ? 0 : 5;
}

TEST(AclMemory, IsSharedWithAnotherProcessByAKey) {
  constexpr std::size_t kNumbers = 3000;
  void* device = nullptr;
  OK(aclrtMalloc(&device, 2 * kNumbers * sizeof(std::uint32_t), ACL_MEM_MALLOC_HUGE_FIRST));
  std::uint32_t* const shared = static_cast<std::uint32_t*>(device) + kNumbers / 2;
  const std::size_t bytes = kNumbers * sizeof(std::uint32_t);
  std::vector<std::uint32_t> numbers(kNumbers);
  std::iota(numbers.begin(), numbers.end(), 7u);
  std::copy(numbers.begin(), numbers.end(), shared);
  char key[65];
  OK(aclrtIpcMemGetExportKey(shared, bytes, key, sizeof key, 0));
  EXPECT_EQ(std::strlen(key), 64u);
  std::int32_t process = 0;
  OK(aclrtDeviceGetBareTgid(&process));
  EXPECT_EQ(process, ::getpid());
  OK(aclrtIpcMemSetImportPid(key, &process, 1));
  EXPECT_EQ(aclrtIpcMemGetExportKey(shared, 2 * bytes, key, sizeof key, 0),
            ACL_ERROR_RT_PARAM_INVALID);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(import_and_add(key, numbers));
  int ended = -1;
  ASSERT_EQ(::waitpid(child, &ended, 0), child);
  EXPECT_EQ(ended, 0) << WEXITSTATUS(ended);
  for (std::uint32_t& each : numbers) ++each;
  EXPECT_TRUE(std::equal(numbers.begin(), numbers.end(), shared));

  // The key belongs to a process that has ended.
  int way[2];
  ASSERT_EQ(::pipe(way), 0);
  const pid_t exporter = ::fork();
  if (exporter == 0) {
    void* memory = nullptr;
    char its[65];
    if (aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST) != 0) ::_exit(1);
    if (aclrtIpcMemGetExportKey(memory, 64, its, sizeof its, 0) != 0) ::_exit(2);
    ::_exit(::write(way[1], its, sizeof its) == sizeof its ? 0 : 3);
  }
  ASSERT_EQ(::waitpid(exporter, &ended, 0), exporter);
  EXPECT_EQ(ended, 0) << WEXITSTATUS(ended);
  void* own = nullptr;
  char its[65];
  ASSERT_EQ(::read(way[0], its, sizeof its), static_cast<ssize_t>(sizeof its));
  REFUSED(aclrtIpcMemImportByKey(&own, its, 0), ACL_ERROR_RT_PARAM_INVALID, "key: process ");
  ::close(way[0]);
  ::close(way[1]);

  // In the process that exported the memory, import returns its own address.
  OK(aclrtIpcMemImportByKey(&own, key, 0));
  EXPECT_EQ(own, shared);
  OK(aclrtIpcMemClose(key));
  OK(aclrtIpcMemClose(key));
  REFUSED(aclrtIpcMemClose(key), ACL_ERROR_RT_PARAM_INVALID, "key");

  // Invalid keys: of no process, of another descriptor, beyond the heap, not a number.
  for (const std::size_t digit : {0u, 15u, 31u, 32u, 48u}) {
    std::string wrong = key;
    wrong[digit] = wrong[digit] == '7' ? '6' : '7';
    REFUSED(aclrtIpcMemImportByKey(&own, wrong.c_str(), 0), ACL_ERROR_RT_PARAM_INVALID, "key: ");
    wrong[digit] = 'x';
    REFUSED(aclrtIpcMemImportByKey(&own, wrong.c_str(), 0), ACL_ERROR_RT_PARAM_INVALID, "key is");
  }
  OK(aclrtFree(device));
}

// Maps blocks behind one another while sizes grow, as hccl_test does.
TEST(AclMemory, MapsBlocksBehindOneAnother) {
  OK(aclrtSetDevice(0));
  std::size_t before = 0;
  std::size_t now = 0;
  std::size_t total = 0;
  OK(aclrtGetMemInfo(ACL_HBM_MEM, &before, &total));
  auto prop = device_prop();
  std::size_t granularity = 0;
  OK(aclrtMemGetAllocationGranularity(&prop, ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED,
                                      &granularity));
  EXPECT_EQ(granularity, kGranule);

  void* reserved = nullptr;
  OK(aclrtReserveMemAddress(&reserved, 8 * kGranule - 1, 0, nullptr, 1));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(reserved) % kGranule, 0u);
  auto* const base = static_cast<char*>(reserved);
  aclrtDrvMemHandle blocks[3] = {};
  const std::size_t sizes[3] = {kGranule, 3 * kGranule, 2 * kGranule};
  const std::size_t at[3] = {0, kGranule, 4 * kGranule};
  for (int i : {0, 2, 1}) {
    OK(aclrtMallocPhysical(&blocks[i], sizes[i], &prop, 0));
    OK(aclrtMapMem(base + at[i], sizes[i], 0, blocks[i], 0));
  }
  const std::size_t all = 6 * kGranule;
  std::vector<std::uint32_t> numbers(all / 4);
  std::iota(numbers.begin(), numbers.end(), 1u);
  OK(aclrtMemcpy(base, all, numbers.data(), all, ACL_MEMCPY_HOST_TO_DEVICE));

  // Calls that are errors while blocks are mapped.
  EXPECT_EQ(aclrtReleaseMemAddress(base), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtReleaseMemAddress(base + kGranule), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtUnmapMem(base + 2 * kGranule), ACL_ERROR_RT_PARAM_INVALID);
  struct Bad {
    char* at;
    std::size_t size;
    std::size_t offset;
    std::uint64_t flags;
  };
  for (const Bad& bad :
       {Bad{base, kGranule, 0, 0}, Bad{base + 3 * kGranule, kGranule, 0, 0},
        Bad{base + 6 * kGranule, 2 * kGranule, 0, 0}, Bad{base + 6 * kGranule, kGranule, 4096, 0},
        Bad{base + 6 * kGranule, kGranule, 0, 1}, Bad{base + 6 * kGranule + 1, kGranule, 0, 0},
        Bad{base + 7 * kGranule + 4096, kGranule, 0, 0}, Bad{base + 8 * kGranule, kGranule, 0, 0},
        Bad{base - kGranule, kGranule, 0, 0}}) {
    EXPECT_EQ(aclrtMapMem(bad.at, bad.size, bad.offset, blocks[0], bad.flags),
              ACL_ERROR_RT_PARAM_INVALID)
        << bad.at - base << " " << bad.size << " " << bad.offset << " " << bad.flags;
  }

  // A block that is freed while it is mapped stays until it is unmapped. A block that is mapped at
  // a second address is the same memory.
  OK(aclrtFreePhysical(blocks[2]));
  EXPECT_EQ(aclrtFreePhysical(blocks[2]), ACL_ERROR_RT_INVALID_HANDLE);
  OK(aclrtUnmapMem(base));
  OK(aclrtMapMem(base + 6 * kGranule, kGranule, 0, blocks[0], 0));
  std::vector<std::uint32_t> back(all / 4);
  OK(aclrtMemcpy(back.data(), all, base + kGranule, all, ACL_MEMCPY_DEVICE_TO_HOST));
  std::rotate(numbers.begin(), numbers.begin() + kGranule / 4, numbers.end());
  EXPECT_TRUE(back == numbers);

  for (char* each : {base + kGranule, base + 4 * kGranule, base + 6 * kGranule}) {
    OK(aclrtUnmapMem(each));
    EXPECT_EQ(aclrtUnmapMem(each), ACL_ERROR_RT_PARAM_INVALID);
  }
  OK(aclrtFreePhysical(blocks[0]));
  OK(aclrtFreePhysical(blocks[1]));
  OK(aclrtReleaseMemAddress(base));
  EXPECT_EQ(aclrtReleaseMemAddress(base), ACL_ERROR_RT_PARAM_INVALID);
  OK(aclrtGetMemInfo(ACL_HBM_MEM, &now, &total));
  EXPECT_EQ(now, before);
  OK(aclrtResetDevice(0));
}

TEST_F(Acl, Copies) {
  for (int kind = 0; kind <= ACL_MEMCPY_INTER_DEVICE_TO_DEVICE; ++kind) {
    const auto direction = static_cast<aclrtMemcpyKind>(kind);
    const std::string text = "direction " + std::to_string(kind);
    char now[32] = {};
    char later[32] = {};
    char at_once[4];
    OK(aclrtMemcpy(now, sizeof now, text.c_str(), text.size() + 1, direction));
    OK(aclrtMemcpyAsync(later, sizeof later, now, sizeof now, direction, stream_));
    OK(aclrtMemcpyAsync(at_once, 4, "left", 4, direction, nullptr));
    EXPECT_EQ(std::memcmp(at_once, "left", 4), 0);  // the default stream copies at once
    OK(aclrtSynchronizeStream(stream_));
    EXPECT_EQ(later, text);
  }
  OK(aclrtMemcpy(this, 0, this, 0, kKind));
  char part[] = "0123456789";
  OK(aclrtMemcpy(part + 1, 9, part, 9, kKind));
  EXPECT_STREQ(part, "0012345678");
  char grid[9] = {};
  OK(aclrtMemset(grid, sizeof grid, '.', 8));
  OK(aclrtMemcpy2d(grid, 4, "abXcdX", 3, 2, 2, kKind));
  EXPECT_STREQ(grid, "ab..cd..");
  OK(aclrtMemsetAsync(grid, sizeof grid, '-', 8, stream_));
  OK(aclrtMemcpy2dAsync(grid + 1, 3, "12", 1, 1, 2, kKind, stream_));
  OK(aclrtSynchronizeStream(stream_));
  EXPECT_STREQ(grid, "-1--2---");
}

}  // namespace
}  // namespace hccl::testing
