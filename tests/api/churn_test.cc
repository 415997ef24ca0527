// Memory, descriptors and threads do not accumulate while ranks make and destroy objects for a long
// time. HCCL_TEST_GROUPS is the number of sub-communicators, HCCL_TEST_CHURN the time in seconds.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "hccl/hccl.h"
#include "hccl/hccl_comm.h"
#include "hccl/hccl_framework.h"

namespace hccl::testing::churn_test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kSize = 3;
constexpr std::size_t kMost = std::size_t{4} << 20;  // bytes of a buffer
constexpr int kSamples = 20;
// The freed device memory that a process may keep, in MB (HCCL_MEMORY_CACHE). The resident memory
// of a rank includes the device memory of all ranks of its host.
constexpr const char* kCacheMb = "32";
constexpr long kCacheKib = kSize * 32L * 1024;
// Memory may grow by this much between the halves of a test: allocators keep some, and threads
// touch their stacks.
constexpr long kSlackKib = 2048;

/// The resources that a process holds.
struct Sample {
  long kept_kib = 0;      // includes the freed device memory that the process keeps
  long resident_kib = 0;  // without that memory
  long descriptors = 0;
  long threads = 0;
};

long entries(const char* path) {
  return std::distance(std::filesystem::directory_iterator(path), {});
}

long resident_kib() {
  std::ifstream file("/proc/self/smaps_rollup");
  long kib = 0;
  for (std::string word; kib == 0 && file >> word;) {
    if (word == "Rss:") file >> kib;
  }
  return kib;
}

/// The memory that the ranks share with the test.
struct Board {
  std::atomic<bool> open{false};
  HcclRootInfo info{};
  std::array<std::array<Sample, kSamples>, kSize> samples{};
  std::array<std::array<char, 512>, kSize> failure{};
};

/// Ends a rank that fails, with a text for the test.
struct Failed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void check(HcclResult result, const char* call) {
  if (result != HCCL_SUCCESS) throw Failed(std::string(call) + ": " + HcclGetLastErrorText());
}
void check_acl(aclError result, const char* call) {
  if (result != ACL_SUCCESS) throw Failed(std::string(call) + ": " + std::to_string(result));
}
#define DO(call) check((call), #call)
#define ACL(call) check_acl((call), #call)

int number(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

class Rank {
 public:
  Rank(Board& board, std::uint32_t rank) : board_(board), rank_(rank) {
    if (rank == 0) {
      DO(HcclGetRootInfo(&board.info));
      board.open = true;
    }
    while (!board.open) std::this_thread::yield();
    DO(HcclCommInitRootInfo(kSize, &board.info, rank, &world_));
    std::mt19937_64 random(1);
    messages(random);  // the world keeps the thread that moves messages
  }

  void note(int at) {
    Sample& now = board_.samples[rank_][static_cast<std::size_t>(at)];
    DO(HcclBarrier(world_, nullptr));
    now.kept_kib = resident_kib();
    now.descriptors = entries("/proc/self/fd") - 1;  // without the listing's own
    now.threads = entries("/proc/self/task");
    DO(HcclBarrier(world_, nullptr));
    DO(HcclMemTrim());
    DO(HcclBarrier(world_, nullptr));
    now.resident_kib = resident_kib();
    DO(HcclBarrier(world_, nullptr));
  }
  void leave() { DO(HcclCommDestroy(world_)); }
  /// Returns whether `mine` is true on any rank.
  bool any(bool mine) {
    std::int32_t number = mine ? 1 : 0;
    DO(HcclAllReduce(&number, &number, 1, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_MAX, world_, nullptr));
    return number != 0;
  }

  /// A sub-communicator of all ranks, whose order differs each time.
  HcclComm group(std::uint64_t id) {
    std::array<std::uint32_t, kSize> ranks{};
    std::uint32_t sub_rank = 0;
    for (std::uint32_t i = 0; i < kSize; ++i) {
      ranks[i] = static_cast<std::uint32_t>((i + id) % kSize);
      if (ranks[i] == rank_) sub_rank = i;
    }
    HcclCommConfig config;
    HcclCommConfigInit(&config);
    HcclComm made = nullptr;
    DO(HcclCreateSubCommConfig(&world_, kSize, ranks.data(), id, sub_rank, &config, &made));
    return made;
  }

  /// Makes, uses and destroys a sub-communicator.
  void pass(std::uint64_t id) {
    const HcclComm comm = group(id);
    float value = 1;
    DO(HcclAllReduce(&value, &value, 1, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, nullptr));
    DO(HcclCommDestroy(comm));
  }

  /// A random action; the same on all ranks.
  void step(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    switch (random() % 16) {
      case 0:
        renew(
            groups_, random(), [&] { return group(++made_); },
            [](HcclComm comm) { DO(HcclCommDestroy(comm)); });
        break;
      case 1:
        renew(
            streams_, random(),
            [] {
              aclrtStream stream = nullptr;
              ACL(aclrtCreateStream(&stream));
              return stream;
            },
            [](aclrtStream stream) {
              ACL(aclrtSynchronizeStream(stream));
              ACL(aclrtDestroyStream(stream));
            });
        break;
      case 2:
        renew(
            blocks_, random(),
            [&] {
              void* block = nullptr;
              ACL(aclrtMalloc(&block, bytes(random), ACL_MEM_MALLOC_HUGE_FIRST));
              return block;
            },
            [](void* block) { ACL(aclrtFree(block)); });
        break;
      case 3:
        renew(
            cached_, random(),
            [&] {
              void* block = nullptr;
              DO(HcclMemAlloc(&block, bytes(random)));
              return block;
            },
            [](void* block) { DO(HcclMemFree(block)); });
        break;
      case 4:
        aborted();
        break;
      case 5:
        messages(random);
        break;
      default:
        collective(random);
    }
  }

  void tidy() {
    for (const HcclComm comm : groups_) {
      if (comm != nullptr) DO(HcclCommDestroy(comm));
    }
    for (const aclrtStream stream : streams_) {
      if (stream != nullptr) ACL(aclrtDestroyStream(stream));
    }
    for (void* const block : blocks_) {
      if (block != nullptr) ACL(aclrtFree(block));
    }
    for (void* const block : cached_) DO(HcclMemFree(block));
    groups_ = {};
    streams_ = {};
    blocks_ = cached_ = {};
  }

 private:
  // Most messages are short, some have megabytes.
  static std::size_t bytes(std::mt19937_64& random) {
    const std::size_t most = kMost >> random() % 17;
    return (most / 2 + random() % (most / 2)) / 16 * 16;
  }

  template <class Things, class Make, class End>
  void renew(Things& things, std::uint64_t which, const Make& make, const End& end) {
    auto& thing = things[which % things.size()];
    if (thing != nullptr) end(thing);
    thing = nullptr;
    thing = make();
  }

  HcclComm any_comm(std::uint64_t which) const {
    const HcclComm chosen = groups_[which % groups_.size()];
    return chosen == nullptr ? world_ : chosen;
  }

  void aborted() {
    const HcclComm comm = group(++made_);
    DO(HcclBarrier(world_, nullptr));  // a rank that is still making the group would fail
    DO(HcclCommAbort(comm, "churn"));
    DO(HcclCommDestroy(comm));
  }

  void messages(std::mt19937_64& random) {
    const HcclComm comm = any_comm(random());
    const auto tag = static_cast<std::int32_t>(random());
    const std::size_t size = bytes(random);
    std::uint32_t me = 0;
    DO(HcclGetRankId(comm, &me));
    char* const out = mine_.data();
    char* const in = out + size;
    std::array<HcclRequest, 2> requests{};
    DO(HcclIsend(out, size, (me + 1) % kSize, tag, comm, nullptr, nullptr, &requests[0]));
    DO(HcclIrecv(in, size, (me + kSize - 1) % kSize, tag, comm, nullptr, nullptr, &requests[1]));
    for (const HcclRequest request : requests) {
      DO(HcclRequestWait(request, 0, nullptr));
      DO(HcclRequestFree(request));
    }
  }

  void collective(std::mt19937_64& random) {
    const HcclComm comm = any_comm(random());
    const aclrtStream stream = streams_[random() % streams_.size()];
    const std::uint64_t size = bytes(random);
    const std::uint64_t count = size / 4;
    void* in = nullptr;
    void* out = nullptr;
    const bool device = random() % 2 == 0;
    if (device) {
      DO(HcclMemAlloc(&in, size * kSize));
      DO(HcclMemAlloc(&out, size * kSize));
    } else {
      in = mine_.data();
      out = mine_.data() + size * kSize;
    }
    run(random() % 7, in, out, count, comm, stream);
    if (stream != nullptr) ACL(aclrtSynchronizeStream(stream));
    if (device) {
      DO(HcclMemFree(in));
      DO(HcclMemFree(out));
    }
  }

  static void run(std::uint64_t which, void* in, void* out, std::uint64_t count, HcclComm comm,
                  aclrtStream stream) {
    const HcclDataType type = HCCL_DATA_TYPE_INT32;
    switch (which) {
      case 0:
        return DO(HcclAllReduce(in, out, count, type, HCCL_REDUCE_SUM, comm, stream));
      case 1:
        return DO(HcclBroadcast(in, count, type, 1, comm, stream));
      case 2:
        return DO(HcclAllGather(in, out, count, type, comm, stream));
      case 3:
        return DO(HcclReduceScatter(in, out, count, type, HCCL_REDUCE_SUM, comm, stream));
      case 4:
        return DO(HcclAlltoAll(in, count, type, out, count, type, comm, stream));
      case 5:
        return DO(HcclReduce(in, out, count, type, HCCL_REDUCE_SUM, 2, comm, stream));
      default:
        return DO(HcclBarrier(comm, stream));
    }
  }

  Board& board_;
  const std::uint32_t rank_;
  HcclComm world_ = nullptr;
  std::uint64_t made_ = 1u << 20;
  std::array<HcclComm, 4> groups_{};
  std::array<aclrtStream, 3> streams_{};
  std::array<void*, 24> blocks_{};
  std::array<void*, 24> cached_{};
  std::vector<char> mine_ = std::vector<char>(2 * kSize * kMost);
};

/// Runs body on each rank in a process of its own; returns the board with their samples.
const Board& on_ranks(const std::function<void(Rank&)>& body) {
  void* const page =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* const board = new (page) Board;
  std::array<pid_t, kSize> ranks{};
  for (std::uint32_t rank = 0; rank < kSize; ++rank) {
    ranks[rank] = ::fork();
    if (ranks[rank] != 0) continue;
    try {
      Rank self(*board, rank);
      body(self);
      self.leave();
    } catch (const Failed& why) {
      std::snprintf(board->failure[rank].data(), board->failure[rank].size(), "%s", why.what());
      ::_exit(1);
    }
    ::_exit(0);
  }
  for (std::uint32_t rank = 0; rank < kSize; ++rank) {
    int status = -1;
    EXPECT_EQ(::waitpid(ranks[rank], &status, 0), ranks[rank]);
    EXPECT_EQ(status, 0) << "rank " << rank << ": " << board->failure[rank].data();
  }
  return *board;
}

// Samples may grow only a little in the second half; caches fill in the first half.
void expect_flat(const Board& board) {
  for (std::uint32_t rank = 0; rank < kSize; ++rank) {
    const auto& samples = board.samples[rank];
    for (std::size_t i = 0; i < samples.size(); ++i) {
      std::printf("rank %u: %ld KiB and %ld that are kept, %ld descriptors, %ld threads\n", rank,
                  samples[i].resident_kib, samples[i].kept_kib - samples[i].resident_kib,
                  samples[i].descriptors, samples[i].threads);
      EXPECT_EQ(samples[i].descriptors, samples[0].descriptors) << i;
      EXPECT_EQ(samples[i].threads, samples[0].threads) << i;
    }
    const auto less = [](const Sample& a, const Sample& b) {
      return a.resident_kib < b.resident_kib;
    };
    const auto half = samples.begin() + kSamples / 2;
    EXPECT_LE(std::max_element(half, samples.end(), less)->resident_kib,
              std::max_element(samples.begin(), half, less)->resident_kib + kSlackKib);
  }
}

TEST(Churn, SubCommunicatorsLeaveNothing) {
  const int groups = number("HCCL_TEST_GROUPS", 200);
  expect_flat(on_ranks([groups](Rank& rank) {
    std::uint64_t id = 0;
    for (int at = 0; at < kSamples; ++at) {
      for (int i = 0; i < groups / kSamples; ++i) rank.pass(++id);
      rank.note(at);
    }
  }));
}

TEST(Churn, RandomOperationsLeaveNothing) {
  ::setenv("HCCL_MEMORY_CACHE", kCacheMb, 1);
  const double seconds = number("HCCL_TEST_CHURN", 5);
  const Board& board = on_ranks([seconds](Rank& rank) {
    std::mt19937_64 random(7);
    const auto begin = Clock::now();
    for (int at = 0; at < kSamples; ++at) {
      const std::chrono::duration<double> until(seconds * (at + 1) / kSamples);
      do {
        for (int i = 0; i < 20; ++i) rank.step(random());
      } while (rank.any(Clock::now() - begin < until));
      rank.tidy();
      rank.note(at);
    }
  });
  expect_flat(board);
  for (const auto& samples : board.samples) {
    for (const Sample& each : samples) {
      EXPECT_LE(each.kept_kib - each.resident_kib, kCacheKib + kSlackKib);
    }
  }
}

#undef DO
#undef ACL

}  // namespace
}  // namespace hccl::testing::churn_test
