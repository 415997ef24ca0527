// The device heap: allocations and refusals, and whether another process sees the same bytes.
#include "hccl/memory/heap.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "hccl/memory/arena.h"
#include "hccl/memory/committed.h"
#include "tests/memory/sizes.h"
#include "tests/support/threads.h"

namespace hccl::memory {
namespace {

TEST(Heap, HandsOutMemoryThatNobodyElseHas) {
  const auto heap = Heap::create(64 * kMiB).value();
  std::mt19937 random(1);
  std::map<std::byte*, std::size_t> live;
  for (int i = 0; i < 3000; ++i) {
    if (live.size() < 40 && random() % 3 != 0) {
      const std::size_t bytes = 1 + random() % 300000;
      const std::size_t alignment = std::size_t{64} << random() % 8;
      auto* const memory = static_cast<std::byte*>(heap->allocate(bytes, alignment).value());
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(memory) % alignment, 0u);
      std::memset(memory, static_cast<int>(bytes % 251), bytes);
      ASSERT_TRUE(live.emplace(memory, bytes).second);
    } else if (!live.empty()) {
      const auto at = std::next(live.begin(), static_cast<int>(random() % live.size()));
      const auto value = static_cast<std::byte>(at->second % 251);
      ASSERT_TRUE(std::all_of(at->first, at->first + at->second,
                              [value](std::byte each) { return each == value; }));
      ASSERT_TRUE(heap->free(at->first).ok());
      live.erase(at);
    }
  }
  for (const auto& [memory, bytes] : live) ASSERT_TRUE(heap->free(memory).ok());
  EXPECT_EQ(heap->used(), 0u);
  // Fragments are merged: the whole heap can be allocated again.
  EXPECT_TRUE(heap->allocate(64 * kMiB).ok());
}

// The kernel's flags of each mapping of a heap in this process.
std::vector<std::string> flags_of_heaps() {
  std::ifstream maps("/proc/self/smaps");
  std::vector<std::string> found;
  bool of_heap = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:hccl-heap") != std::string::npos) of_heap = true;
    if (line.starts_with("VmFlags:") && std::exchange(of_heap, false)) found.push_back(line + " ");
  }
  return found;
}

// Returns the offset of an allocation that can be mapped.
std::uint64_t allocate_granules(Heap& heap, std::size_t bytes) {
  return heap.locate(heap.allocate(bytes, Heap::kGranule).value(), bytes).value();
}

// A core dump would touch the whole reserved memory while peers wait for the rank.
TEST(Heap, IsLeftOutOfCoreDumps) {
  const auto heap = Heap::create(64 * kMiB).value();
  const auto view = View::of(Fd(::dup(heap->memfd().get()))).value();
  void* const area = ::mmap(nullptr, 2 * kMiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_TRUE(heap->map(area, 2 * kMiB, allocate_granules(*heap, 2 * kMiB)).ok());
  const auto all = flags_of_heaps();
  EXPECT_EQ(all.size(), 3u);
  for (const std::string& flags : all) EXPECT_NE(flags.find(" dd "), std::string::npos) << flags;
}

TEST(Heap, RefusesWhatItCannotGive) {
  const auto heap = Heap::create(4 * kMiB).value();
  EXPECT_EQ(heap->allocate(0).status().code(), Code::kPara);
  EXPECT_EQ(heap->allocate(5 * kMiB).status().code(), Code::kOom);
  EXPECT_EQ(heap->allocate(~std::size_t{0}).status().code(), Code::kOom);
  void* const memory = heap->allocate(3 * kMiB).value();
  const auto full = heap->allocate(2 * kMiB);
  EXPECT_EQ(full.status().code(), Code::kOom);
  EXPECT_NE(full.status().message().find("2097152 bytes"), std::string::npos);
  EXPECT_EQ(heap->free(nullptr).code(), Code::kPara);
  EXPECT_EQ(heap->free(static_cast<std::byte*>(memory) + 64).code(), Code::kPara);
  EXPECT_TRUE(heap->free(memory).ok());
  EXPECT_EQ(heap->free(memory).code(), Code::kPara) << "freed twice";
}

TEST(Heap, LocatesItsOwnMemoryAndNothingElse) {
  const auto heap = Heap::create(8 * kMiB).value();
  auto* const memory = static_cast<std::byte*>(heap->allocate(1000).value());
  const std::uint64_t at = heap->locate(memory, 1000).value();
  EXPECT_EQ(heap->base() + at, memory);
  EXPECT_EQ(heap->locate(memory + 10, 20).value(), at + 10);
  EXPECT_FALSE(heap->locate(memory, 9 * kMiB));
  EXPECT_FALSE(heap->locate(heap->base() + 8 * kMiB, 1));
  EXPECT_FALSE(heap->locate(heap->base() - 1, 2));
  int local = 0;
  EXPECT_FALSE(heap->locate(&local, sizeof local));
  EXPECT_FALSE(heap->locate(nullptr, 0));
}

TEST(Heap, MapsPhysicalBlocksBehindOneAnother) {
  const auto heap = Heap::create(64 * kMiB).value();
  auto* const area = static_cast<std::byte*>(
      ::mmap(nullptr, 16 * kMiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  ASSERT_NE(area, MAP_FAILED);
  const auto first = allocate_granules(*heap, 2 * kMiB);
  const auto second = allocate_granules(*heap, 4 * kMiB);
  ASSERT_TRUE(heap->map(area, 2 * kMiB, first).ok());
  ASSERT_TRUE(heap->map(area + 2 * kMiB, 4 * kMiB, second).ok());
  EXPECT_EQ(heap->map(area + kMiB, 2 * kMiB, first).code(), Code::kPara) << "occupied";
  EXPECT_EQ(heap->map(area + 8 * kMiB + 1, 2 * kMiB, first).code(), Code::kPara) << "no whole page";
  EXPECT_EQ(heap->map(area + 8 * kMiB, 128 * kMiB, first).code(), Code::kPara) << "past the end";
  // Both addresses show the same bytes.
  std::memset(area, 7, 6 * kMiB);
  EXPECT_EQ(heap->base()[first], std::byte{7});
  EXPECT_EQ(heap->base()[second + 4 * kMiB - 1], std::byte{7});
  EXPECT_EQ(heap->locate(area + 5, 100).value(), first + 5);
  // The blocks are adjacent in the heap, too, so both are one piece.
  ASSERT_EQ(second, first + 2 * kMiB);
  EXPECT_EQ(heap->locate(area, 6 * kMiB).value(), first);
  EXPECT_FALSE(heap->locate(area, 6 * kMiB + 1));
  // The order of their addresses is now reversed, so they are no longer one piece.
  ASSERT_TRUE(heap->unmap(area).ok());
  ASSERT_TRUE(heap->unmap(area + 2 * kMiB).ok());
  EXPECT_EQ(heap->unmap(area).code(), Code::kPara);
  EXPECT_FALSE(heap->locate(area, 1));
  ASSERT_TRUE(heap->map(area, 4 * kMiB, second).ok());
  ASSERT_TRUE(heap->map(area + 4 * kMiB, 2 * kMiB, first).ok());
  EXPECT_FALSE(heap->locate(area, 6 * kMiB));
  EXPECT_EQ(heap->locate(area + 4 * kMiB, kMiB).value(), first);
  ASSERT_TRUE(heap->unmap(area).ok());
  ASSERT_TRUE(heap->unmap(area + 4 * kMiB).ok());
  ASSERT_TRUE(heap->free(heap->base() + first).ok());
  ASSERT_TRUE(heap->free(heap->base() + second).ok());
  ::munmap(area, 16 * kMiB);
}

TEST(Heap, AnotherProcessSeesTheSameBytes) {
  const auto heap = Heap::create(8 * kMiB).value();
  auto* const word = static_cast<std::uint64_t*>(heap->allocate(8).value());
  *word = 1;
  const std::uint64_t at = heap->locate(word, 8).value();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto view = View::of(Fd(::dup(heap->memfd().get())));
    if (!view.ok() || (*view)->size() != heap->reserve()) ::_exit(1);
    auto* const there = reinterpret_cast<std::uint64_t*>((*view)->base() + at);
    if (*there != 1) ::_exit(2);
    *there = 42;
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(*word, 42u);
}

TEST(Heap, AViewOfWhatIsNoHeapIsRefused) {
  const Fd plain(::memfd_create("plain", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(plain.get(), 4096), 0);
  EXPECT_EQ(View::of(plain).status().code(), Code::kTcpConnect);
  EXPECT_FALSE(View::of(Fd()).ok());
}

TEST(Heap, IsSafeFromManyThreads) {
  const auto heap = Heap::create(64 * kMiB).value();
  testing::on_threads(8, [&heap](int t) {
    for (int i = 0; i < 300; ++i) {
      auto* const memory = static_cast<std::byte*>(heap->allocate(1000 + 100 * t).value());
      std::memset(memory, t, 1000);
      EXPECT_EQ(memory[999], static_cast<std::byte>(t));
      EXPECT_TRUE(heap->locate(memory, 1000).has_value());
      EXPECT_TRUE(heap->free(memory).ok());
    }
  });
  EXPECT_EQ(heap->used(), 0u);
}

// The bytes of physical memory that the system reports for a heap.
std::size_t resident(const Heap& heap) {
  struct stat about{};
  EXPECT_EQ(::fstat(heap.memfd().get(), &about), 0);
  return static_cast<std::size_t>(about.st_blocks) * 512;
}

TEST(Heap, KeepsFreedMemoryUpToItsBound) {
  const auto heap = Heap::create(128 * kMiB).value();
  heap->limit_kept(8 * kMiB);
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 40; ++i) {
    blocks.push_back(static_cast<std::byte*>(heap->allocate(kMiB).value()));
    std::memset(blocks.back(), i, kMiB);
  }
  EXPECT_EQ(resident(*heap), 40 * kMiB);
  for (std::size_t i = 0; i < 40; i += 2) ASSERT_TRUE(heap->free(blocks[i]).ok());
  EXPECT_LE(resident(*heap), 28 * kMiB);
  EXPECT_GT(resident(*heap), 20 * kMiB) << "something is kept for the next allocation";
  for (std::size_t i = 1; i < 40; i += 2) {
    const auto value = static_cast<std::byte>(i);
    ASSERT_TRUE(std::all_of(blocks[i], blocks[i] + kMiB, [&](auto each) { return each == value; }));
  }
  // A part that is allocated again has memory again.
  blocks[0] = static_cast<std::byte*>(heap->allocate(30 * kMiB).value());
  std::memset(blocks[0], 1, 30 * kMiB);
  EXPECT_GE(resident(*heap), 50 * kMiB);
  ASSERT_TRUE(heap->free(blocks[0]).ok());
  for (std::size_t i = 1; i < 40; i += 2) ASSERT_TRUE(heap->free(blocks[i]).ok());
  EXPECT_LE(resident(*heap), 8 * kMiB);
  heap->limit_kept(0);
  EXPECT_EQ(resident(*heap), 0u);
  EXPECT_EQ(heap->kept(), 0u);
}

// If the child may have no writable memory of its own, or has closed the memfd, it can only read.
TEST(Heap, AForkedChildChangesNothing) {
  const auto heap = Heap::create(8 * kMiB).value();
  auto* const block = static_cast<char*>(heap->allocate(4 * kMiB).value());
  std::memset(block, 7, 4 * kMiB);
  for (const bool limited : {false, true}) {
    for (const bool closed : {false, true}) {
      const pid_t child = ::fork();
      if (child == 0) {
        const rlimit none{0, 0};
        if (limited) ::setrlimit(RLIMIT_DATA, &none);
        if (closed) ::close(heap->memfd().get());
        heap->make_private();
        if (block[3 * kMiB] != 7) ::_exit(1);
        if (limited || closed) std::signal(SIGSEGV, [](int) { ::_exit(0); });
        std::memset(block, 9, 4 * kMiB);
        ::_exit(limited || closed ? 2 : 0);
      }
      int status = -1;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
      EXPECT_EQ(std::count(block, block + 4 * kMiB, 7), static_cast<long>(4 * kMiB));
    }
  }
}

// If files or addresses are limited, the heap uses what the limits allow. An error names the limit
// that is too low.
TEST(Heap, LimitsOfTheProcessAreRespectedAndNamed) {
  const auto in_child = [](const auto& body) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(body());
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status;
  };
  EXPECT_EQ(in_child([] {
              const rlimit limit{5 * kMiB, 5 * kMiB};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
              const auto heap = Heap::create(64 * kMiB);
              if (!heap.ok() || (*heap)->reserve() != 4 * kMiB) return 2;
              if (!(*heap)->allocate(4 * kMiB).ok()) return 3;
              const Status more = (*heap)->allocate(1).status();
              return more.message().find("ulimit -f") == std::string::npos ? 4 : 0;
            }),
            0);
  EXPECT_EQ(in_child([] {
              const rlimit limit{kMiB, kMiB};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
              const Status none = Heap::create(64 * kMiB).status();
              return none.message().find("ulimit -f") == std::string::npos ? 2 : 0;
            }),
            0);
  // Without a configured size the heap takes a part of the addresses; a configured size may be too
  // large.
  EXPECT_EQ(in_child([] {
              const rlimit limit{1024 * kMiB, 1024 * kMiB};
              if (::setrlimit(RLIMIT_AS, &limit) != 0) return 1;
              if (!Heap::create().ok()) return 2;
              const Status none = Heap::create(1100 * kMiB).status();
              return none.message().find("ulimit -v") == std::string::npos ? 3 : 0;
            }),
            0);
}

// Compares with a map of every unit.
TEST(Committed, KnowsEveryUnit) {
  constexpr std::uint64_t kSize = 200;
  Committed parts;
  std::vector<bool> there(kSize, false);
  std::mt19937 random(5);
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t from = random() % kSize;
    const std::uint64_t to = from + 1 + random() % std::min<std::uint64_t>(20, kSize - from);
    if (random() % 2 == 0) {
      parts.add(from, to);
      for (std::uint64_t u = from; u < to; ++u) there[u] = true;
    } else {
      parts.remove(from, to);
      for (std::uint64_t u = from; u < to; ++u) there[u] = false;
    }
    const std::uint64_t a = random() % kSize;
    const std::uint64_t b = a + 1 + random() % (kSize - a);
    const auto number = [&](std::uint64_t begin, std::uint64_t end) {
      return static_cast<std::uint64_t>(std::count(there.begin() + static_cast<long>(begin),
                                                   there.begin() + static_cast<long>(end), true));
    };
    ASSERT_EQ(parts.bytes(), number(0, kSize));
    ASSERT_EQ(parts.missing(a, b), b - a - number(a, b));
    const std::uint64_t wanted = 1 + random() % 30;
    const std::uint64_t last = parts.last(wanted, a, b);
    if (number(a, b) < wanted) {
      ASSERT_EQ(last, a);
    } else {
      ASSERT_EQ(number(last, b), wanted);
    }
  }
}

// Compares with a map of every unit.
TEST(Arena, NeverGivesAUnitTwiceAndLosesNone) {
  constexpr std::uint64_t kSize = 512;
  Arena arena(kSize);
  std::vector<bool> taken(kSize, false);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> live;
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t bytes = 1 + random() % 60;
    const std::uint64_t alignment = std::uint64_t{1} << random() % 5;
    if (random() % 2 == 0) {
      const auto at = arena.take(bytes, alignment);
      // A refusal is right only if no aligned run of free units is that long.
      if (!at) {
        for (std::uint64_t start = 0; start + bytes <= kSize; start += alignment) {
          bool free = true;
          for (std::uint64_t u = start; u < start + bytes; ++u) free = free && !taken[u];
          ASSERT_FALSE(free) << "refused although " << start << " is free";
        }
        continue;
      }
      ASSERT_EQ(*at % alignment, 0u);
      for (std::uint64_t u = *at; u < *at + bytes; ++u) {
        ASSERT_FALSE(taken.at(u));
        taken[u] = true;
      }
      live.emplace_back(*at, bytes);
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      const auto [at, size] = live.back();
      live.pop_back();
      for (std::uint64_t u = at; u < at + size; ++u) taken[u] = false;
      arena.give_back(at, size);
    }
  }
}

}  // namespace
}  // namespace hccl::memory
