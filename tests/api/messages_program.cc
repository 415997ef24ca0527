// Ranks that a launcher started, under mpirun or on several hosts: messages with tags, then time
// limits and the end of sub-communicators, which do not end the world.
//   messages_program
// Each rank on which all was right prints "all right". Needs two ranks or more.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "hccl/hccl.h"
#include "hccl/hccl_framework.h"

namespace {

using std::chrono::milliseconds;

uint32_t rank = 0, size = 0;
int wrong = 0;

void expect(bool right, const std::string& what) {
  if (right) return;
  ++wrong;
  std::fprintf(stderr, "rank %u: %s; last error: %s\n", rank, what.c_str(), HcclGetLastErrorText());
}

void ok(HcclResult result, const char* what) { expect(result == HCCL_SUCCESS, what); }

/// Memory of HcclMemAlloc or of the C++ library.
class Memory {
 public:
  Memory(bool device, size_t bytes) : own_(device ? 0 : bytes), bytes_(bytes) {
    if (device && bytes > 0) ok(HcclMemAlloc(&device_, bytes), "HcclMemAlloc");
  }
  ~Memory() { ok(HcclMemFree(device_), "HcclMemFree"); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  unsigned char* data() {
    return device_ != nullptr ? static_cast<unsigned char*>(device_) : own_.data();
  }
  size_t bytes() const { return bytes_; }

 private:
  void* device_ = nullptr;
  std::vector<unsigned char> own_;
  size_t bytes_;
};

constexpr size_t kBytes[] = {0, 1, 4000, 70000, 3000000};
constexpr int32_t kTags[] = {0, -5, 2147483647};

unsigned char content(uint32_t from, uint32_t to, int32_t tag, size_t bytes, size_t at) {
  return static_cast<unsigned char>(from * 37 + to * 11 + static_cast<uint32_t>(tag) * 5 + bytes +
                                    at % 251);
}

struct Transfer {
  Transfer(bool send, uint32_t with, int32_t with_tag, bool device, size_t bytes)
      : sending(send), peer(with), tag(with_tag), memory(device, bytes) {}
  bool sending;
  uint32_t peer;
  int32_t tag;
  Memory memory;
  HcclRequest request = nullptr;
};

// Every rank sends every length with every tag to every rank; half of the messages are in device
// memory. Messages of one pair and tag are posted in the same order on both sides, all others in
// any order.
void exchange(HcclComm comm) {
  std::vector<std::vector<std::unique_ptr<Transfer>>> lines;
  for (uint32_t peer = 0; peer < size; ++peer) {
    for (const int32_t tag : kTags) {
      for (const bool sending : {true, false}) {
        auto& line = lines.emplace_back();
        for (const size_t bytes : kBytes) {
          const bool device = (peer + rank + bytes + sending) % 2 == 0;
          auto& one =
              *line.emplace_back(std::make_unique<Transfer>(sending, peer, tag, device, bytes));
          for (size_t i = 0; sending && i < bytes; ++i) {
            one.memory.data()[i] = content(rank, peer, tag, bytes, i);
          }
        }
      }
    }
  }
  std::mt19937 random(rank);
  std::shuffle(lines.begin(), lines.end(), random);
  for (size_t i = 0; i < std::size(kBytes); ++i) {
    for (auto& line : lines) {
      Transfer& one = *line[i];
      const auto post = one.sending ? HcclIsend(one.memory.data(), one.memory.bytes(), one.peer,
                                                one.tag, comm, nullptr, nullptr, &one.request)
                                    : HcclIrecv(one.memory.data(), one.memory.bytes(), one.peer,
                                                one.tag, comm, nullptr, nullptr, &one.request);
      ok(post, "a message begins");
    }
  }
  for (auto& line : lines) {
    for (auto& one : line) {
      uint32_t source = 99;
      ok(HcclRequestWait(one->request, 60000, &source), "a message ends");
      expect(source == one->peer, "source is the peer");
      ok(HcclRequestFree(one->request), "HcclRequestFree");
      for (size_t i = 0; !one->sending && i < one->memory.bytes(); ++i) {
        if (one->memory.data()[i] == content(one->peer, rank, one->tag, one->memory.bytes(), i)) {
          continue;
        }
        expect(false, "byte " + std::to_string(i) + " of " + std::to_string(one->memory.bytes()) +
                          " from " + std::to_string(one->peer) + " with tag " +
                          std::to_string(one->tag));
        break;
      }
    }
  }
}

// Rank 0 receives a message from each rank, in the order in which they come.
void gather(HcclComm comm) {
  const uint32_t mine = rank * 1000 + 7;
  HcclRequest sent = nullptr;
  ok(HcclIsend(&mine, sizeof mine, 0, 4, comm, nullptr, nullptr, &sent), "HcclIsend");
  std::vector<bool> seen(size);
  for (uint32_t i = 0; rank == 0 && i < size; ++i) {
    uint32_t got = 0, source = 0;
    HcclRequest request = nullptr;
    ok(HcclIrecv(&got, sizeof got, HCCL_ANY_RANK, 4, comm, nullptr, nullptr, &request),
       "HcclIrecv");
    ok(HcclRequestWait(request, 60000, &source), "a message of any rank");
    expect(source < size && !seen[source] && got == source * 1000 + 7, "whose message it is");
    if (source < size) seen[source] = true;
    ok(HcclRequestFree(request), "HcclRequestFree");
  }
  ok(HcclRequestWait(sent, 60000, nullptr), "the own message");
  ok(HcclRequestFree(sent), "HcclRequestFree");
}

HcclComm all_ranks_again(HcclComm world, uint64_t id) {
  std::vector<uint32_t> ranks;
  for (uint32_t r = 0; r < size; ++r) ranks.push_back(r);
  HcclCommConfig config;
  HcclCommConfigInit(&config);
  HcclComm made = nullptr;
  ok(HcclCreateSubCommConfig(&world, size, ranks.data(), id, rank, &config, &made),
     "HcclCreateSubCommConfig");
  return made;
}

/// An operation that all ranks call, or all but the last one.
HcclResult reduce(HcclComm comm) {
  float value = 1;
  return HcclAllReduce(&value, &value, 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, nullptr);
}

bool said(const std::string& words) {
  return std::string(HcclGetLastErrorText()).find(words) != std::string::npos;
}

// The last rank does not call within the time limit.
void limit(HcclComm comm) {
  uint64_t milliseconds_set = 0;
  ok(reduce(comm), "all come, however late");
  ok(HcclCommSetTimeout(comm, 400), "HcclCommSetTimeout");
  ok(HcclCommGetTimeout(comm, &milliseconds_set), "HcclCommGetTimeout");
  expect(milliseconds_set == 400, "the limit that was set");
  HcclResult failed = HCCL_SUCCESS;
  while (rank == size - 1 && failed == HCCL_SUCCESS) {
    std::this_thread::sleep_for(milliseconds(10));
    ok(HcclGetCommAsyncError(comm, &failed), "HcclGetCommAsyncError");
  }
  const HcclResult result = reduce(comm);
  if (rank != size - 1) expect(result == HCCL_E_TIMEOUT, "the operation ends by its limit");
  expect(result != HCCL_SUCCESS && said("rank " + std::to_string(size - 1)), "who was late");
}

// Rank 0 aborts the group while other ranks wait for a message and in an operation.
void abort_it(HcclComm comm) {
  char byte = 0;
  HcclRequest request = nullptr;
  ok(HcclIrecv(&byte, 1, 0, 3, comm, nullptr, nullptr, &request), "HcclIrecv");
  if (rank == 0) {
    std::this_thread::sleep_for(milliseconds(300));
    ok(HcclCommAbort(comm, "the data has run out"), "HcclCommAbort");
  }
  for (const bool message : {false, true}) {
    const HcclResult result = message ? HcclRequestWait(request, 30000, nullptr) : reduce(comm);
    expect(result == HCCL_E_UNAVAIL, "what waits ends with HCCL_E_UNAVAIL");
    expect(said("rank 0 aborted") && said("the data has run out"), "who ended it and why");
  }
  ok(HcclRequestFree(request), "HcclRequestFree");
  expect(HcclIsend(&byte, 1, 0, 3, comm, nullptr, nullptr, &request) == HCCL_SUCCESS &&
             HcclRequestWait(request, 1000, nullptr) == HCCL_E_UNAVAIL,
         "later messages are refused");
  ok(HcclRequestFree(request), "HcclRequestFree");
}

}  // namespace

// With an argument: only what succeeds, as a program without failures.
int main(int argc, char**) {
  HcclComm world = nullptr;
  if (HcclCommInitLauncher(&world) != HCCL_SUCCESS) {
    std::fprintf(stderr, "joining: %s\n", HcclGetLastErrorText());
    return 1;
  }
  ok(HcclGetRankId(world, &rank), "HcclGetRankId");
  ok(HcclGetRankSize(world, &size), "HcclGetRankSize");
  exchange(world);
  gather(world);
  for (uint64_t id = 1; id <= (argc > 1 ? 1 : 3); ++id) {
    const HcclComm sub = all_ranks_again(world, id);
    if (sub == nullptr) return 1;
    if (id == 1) exchange(sub);
    if (id == 2) limit(sub);
    if (id == 3) abort_it(sub);
    ok(HcclCommDestroy(sub), "HcclCommDestroy");
    ok(HcclBarrier(world, nullptr), "the world goes on");
  }
  gather(world);
  ok(HcclBarrier(world, nullptr), "the end");
  ok(HcclCommDestroy(world), "HcclCommDestroy");
  if (wrong == 0) std::printf("rank %u of %u: all right\n", rank, size);
  return wrong == 0 ? 0 : 1;
}
