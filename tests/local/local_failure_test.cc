// Failures of local algorithms: ranks that are missing, have ended or were refused, invalid
// buffers, calls that differ. The error names the culprit, and afterwards no rank's memory is
// accessed.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hccl/local/call_key.h"
#include "tests/support/local_ranks.h"

namespace hccl::local {
namespace {

using exec::LocalEngine;
using testing::LocalRanks;

/// A process that does nothing. end() kills and reaps it.
class Child {
 public:
  Child() : process_(::fork()) {
    if (process_ == 0) {
      for (;;) ::pause();
    }
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t process() const { return process_; }
  void end() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = 0;
  }

 private:
  pid_t process_;
};

Status run_by(LocalEngine& engine, const char* algorithm, const Call& call) {
  return engine.run(call, envelope(call, 1, 0), find(call.op, algorithm));
}

/// Stores the ranks that waiting ranks named as late.
struct Reports {
  Waiter waiter() {
    return Waiter{.timeout = std::chrono::milliseconds(600),
                  .stalled = [this](const WaitingCall& pending) {
                    const std::lock_guard lock(mutex);
                    named.push_back(pending.late);
                    calls.insert(pending.call);
                  }};
  }
  std::mutex mutex;
  std::vector<std::vector<int>> named;
  std::set<std::string> calls;
};

Call allreduce_of(std::vector<std::uint32_t>& data) {
  return {Op::kAllReduce, data.data(), data.data(), data.size(), DataType::kUint32};
}

/// An allgather of `count` elements in all; the output follows the input in memory.
Call gather(std::uint32_t* in, std::uint64_t count) {
  return {Op::kAllGather, in, in + count, count / 2, DataType::kUint32};
}

// Only the rank that does not come is named.
TEST(LocalFailure, ARankThatDoesNotComeIsNamed) {
  constexpr int kSize = 4;
  constexpr std::size_t kCounts[kSize] = {2, 3000, 100000, 100};
  for (int absent = 0; absent < kSize; ++absent) {
    Reports reports;
    LocalRanks host({.size = kSize}, reports.waiter());
    host.run([&](int rank, LocalEngine& engine) {
      if (rank == absent) return;
      std::vector<std::uint32_t> data(kCounts[absent]);
      const Call call = allreduce_of(data);
      const Status status = engine.run(call, envelope(call, 1, 0));
      EXPECT_EQ(status.code(), Code::kTimeout) << status.message();
      EXPECT_TRUE(status.message().ends_with("from rank " + std::to_string(absent)))
          << status.message();
    });
    ASSERT_FALSE(reports.named.empty());
    for (const auto& late : reports.named) EXPECT_EQ(late, std::vector<int>{absent});
  }
}

// If a rank does not take its turn, the ranks after it wait, and this rank alone is named.
TEST(LocalFailure, ARankThatDoesNotTakeItsTurnIsNamed) {
  constexpr int kSize = 4;
  for (int absent = 0; absent < kSize; ++absent) {
    Reports reports;
    LocalRanks host({.size = kSize}, reports.waiter());
    host.run([&](int rank, LocalEngine& engine) {
      std::vector<float> data(1 << 20);
      Call call{Op::kAllReduce, data.data(), data.data(), data.size()};
      const Envelope sent = envelope(call, 1, 0);
      engine.begin(call, sent, find(Op::kAllReduce, "turns"));
      if (rank == absent) return;
      EXPECT_EQ(engine.finish().code(), Code::kTimeout);
    });
    ASSERT_FALSE(reports.named.empty());
    for (const auto& late : reports.named) EXPECT_EQ(late, std::vector<int>{absent});
  }
}

// The root compares the calls of ranks that wait in the same step. Rank 1 has reached the barrier
// of the opening, but not the test of copies after that barrier.
TEST(LocalFailure, AnOpeningIsOneCallToThoseWhoWaitInIt) {
  Reports reports;
  LocalRanks host({.size = 2}, reports.waiter());
  const Call barrier;
  const Envelope opening = envelope(barrier, 0, 0);
  host.run([&](int rank, LocalEngine& engine) {
    const Status status = rank == 0 ? engine.open(true) : engine.run(barrier, opening);
    EXPECT_EQ(status.ok(), rank == 1) << status.message();
  });
  EXPECT_EQ(reports.calls, std::set{to_string(opening)});
}

// The process number belongs to another process (as in containers with their own numbers), or to
// none that the kernel lets this process copy from. Then all ranks do without the kernel's copies.
TEST(LocalFailure, RanksThatCannotBeReachedByTheKernelAreNot) {
  Child stranger;
  ASSERT_GT(stranger.process(), 0);
  for (const pid_t process : {stranger.process(), pid_t{0}, pid_t{-1}}) {
    LocalRanks host({.size = 3});
    host.run([&](int rank, LocalEngine& engine) {
      host.set_process(rank, 1, process);
      const Status opened = engine.open(true);
      ASSERT_TRUE(opened.ok()) << opened.message();
      EXPECT_FALSE(engine.topology().kernel_copies);
      std::vector<std::uint32_t> data(50000, static_cast<std::uint32_t>(rank));
      const Call call = allreduce_of(data);
      ASSERT_TRUE(run_by(engine, "cma", call).ok());
      EXPECT_NE(engine.last_choice()->algorithm->name, "cma");
      for (const std::uint32_t value : data) ASSERT_EQ(value, 3U);
    });
  }
}

// If a copy from an ended process fails, the error does not blame the buffer. The root normally
// reports the end of the process. Here is no root, so the error names the ended rank as awaited.
TEST(LocalFailure, AnEndedProcessIsWaitedForByName) {
  Child child;
  const pid_t process = child.process();
  child.end();
  LocalRanks host({.size = 2}, Waiter{.timeout = std::chrono::milliseconds(300)});
  host.run_open([&](int rank, LocalEngine& engine) {
    host.set_process(rank, 1, process);
    std::vector<std::uint32_t> data(50000, 1);
    const Status status = run_by(engine, "cma", allreduce_of(data));
    EXPECT_EQ(status.code(), Code::kTimeout) << status.message();
    if (rank == 0) {
      EXPECT_NE(status.message().find("from rank 1"), std::string::npos) << status.message();
    }
  });
}

// A rank in a long copy stops when the operation has failed, because the other ranks get their
// buffers back.
TEST(LocalFailure, CopiesEndSoonAfterAFailure) {
  LocalRanks host({.size = 2, .shared_cores = false});
  std::atomic<bool> told{false};
  host.run_open([&](int rank, LocalEngine& engine) {
    std::vector<std::uint32_t> in(std::size_t{4} << 20, rank == 1 ? 7 : 0);
    std::vector<std::uint32_t> out(std::size_t{4} << 20, 0);
    Call call{Op::kAllToAll, in.data(), out.data(), in.size() / 2, DataType::kUint32};
    const Envelope sent = envelope(call, 1, 0);
    engine.begin(call, sent, find(call.op, "cma"));
    if (rank == 0) {
      // Rank 0 has announced; it gets the failure while rank 1 is about to copy.
      host.abort(Status(Code::kRemote, "rank 9 died", 9));
      told = true;
      const Status status = engine.finish();
      EXPECT_EQ(status.code(), Code::kRemote) << status.message();
      EXPECT_EQ(std::count(out.begin(), out.end(), 7U), 0) << "rank 1 copied what nobody wants";
      return;
    }
    while (!told) std::this_thread::yield();
    EXPECT_EQ(engine.finish().code(), Code::kRemote);
  });
}

// All ranks that copy from or to the invalid buffer name its rank. Both buffers begin at a page, so
// that the kernel writes directly into the read-only buffer. At some other offsets the kernel
// copies into an intermediate buffer, and the rank would copy from there to read-only memory:
// SIGSEGV.
TEST(LocalFailure, ARankWhoseBufferIsNoMemoryIsNamed) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  const auto map = [](int protection) {
    return ::mmap(nullptr, kBytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  };
  void* const sealed = map(PROT_READ);
  void* const open = map(PROT_READ | PROT_WRITE);
  ASSERT_TRUE(sealed != MAP_FAILED && open != MAP_FAILED);
  LocalRanks host({.size = 2, .shared_cores = false},
                  Waiter{.timeout = std::chrono::milliseconds(300)});
  host.run_open([&](int rank, LocalEngine& engine) {
    void* const buffer = rank == 1 ? sealed : open;
    const Call call{Op::kBroadcast, buffer, buffer, kBytes, DataType::kInt8};
    const Status status = run_by(engine, "cma", call);
    EXPECT_EQ(status.code(), Code::kPara) << status.message();
    EXPECT_EQ(status.culprit(), 1) << status.message();
  });
  ::munmap(sealed, kBytes);
  ::munmap(open, kBytes);
}

TEST(LocalFailure, NamesBothCallsOfAMismatchOnAllRanks) {
  constexpr int kSize = 4;
  for (const std::uint64_t count : {2u, 14u, 3000u, 100000u}) {
    LocalRanks host({.size = kSize});
    host.run([&](int rank, LocalEngine& engine) {
      // The other ranks get the error before the last rank comes.
      if (rank == kSize - 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      std::vector<std::uint32_t> data(100001);
      Call call = allreduce_of(data);
      call.count = count + (rank == 1 ? 1 : 0);
      const Status status = engine.run(call, envelope(call, 1, 0));
      EXPECT_EQ(status.code(), Code::kPara);
      const std::string& text = status.message();
      EXPECT_NE(text.find("count " + std::to_string(count) + ","), std::string::npos) << text;
      EXPECT_NE(text.find("count " + std::to_string(count + 1) + ","), std::string::npos) << text;
      EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
    });
  }
}

// The 32-bit digest that this library once compared: a search finds collisions.
std::uint32_t short_digest(const Envelope& call) {
  const std::uint64_t kind = std::uint64_t{call.op} << 24 | std::uint64_t{call.type} << 16 |
                             std::uint64_t{call.reduce} << 8 | call.version;
  const std::uint64_t who = std::uint64_t{call.root} << 32 | call.plan;
  const std::uint64_t how = std::uint64_t{call.algorithm} << 32 | kind;
  std::uint64_t h = call.sequence * 0x9E3779B97F4A7C15u;
  h += (call.count ^ call.count >> 32) * 0xD6E8FEB86659FD93u;
  h ^= (who ^ who >> 32) * 0xA0761D6478BD642Fu;
  h += (how ^ how >> 32) * 0xE7037ED1A0B428DBu;
  return static_cast<std::uint32_t>(h >> 32);
}

/// Pairs of different calls that have the same short digest.
std::vector<std::pair<Call, Call>> doubles(std::size_t wanted) {
  std::vector<std::pair<Call, Call>> found;
  std::unordered_map<std::uint32_t, Call> seen;
  for (std::uint64_t count = 1; found.size() < wanted && count < 20000; ++count) {
    for (const Op op : {Op::kAllReduce, Op::kBroadcast, Op::kReduce}) {
      for (const DataType type : {DataType::kFp32, DataType::kInt32, DataType::kUint32}) {
        for (int root = 0; root < (op == Op::kAllReduce ? 1 : 2); ++root) {
          Call call{op, nullptr, nullptr, count, type};
          call.root = root;
          const auto [at, fresh] = seen.try_emplace(short_digest(envelope(call, 1, 0)), call);
          if (!fresh) found.emplace_back(at->second, call);
        }
      }
    }
  }
  return found;
}

TEST(LocalFailure, CallsOfOneShortDigestAreDifferentAllTheSame) {
  const auto pairs = doubles(28);
  ASSERT_GE(pairs.size(), 28U);
  for (const auto& pair : pairs) {
    LocalRanks host({.size = 2});
    host.run([&](int rank, LocalEngine& engine) {
      std::vector<std::uint32_t> in(20000), out(20000);
      Call call = rank == 0 ? pair.first : pair.second;
      call.in = in.data();
      call.out = out.data();
      const Status status = engine.run(call, envelope(call, 1, 0));
      EXPECT_EQ(status.code(), Code::kPara) << to_string(envelope(call, 1, 0));
      for (const auto& each : {pair.first, pair.second}) {
        EXPECT_TRUE(status.message().find(to_string(envelope(each, 1, 0))) != std::string::npos)
            << status.message();
      }
    });
  }
}

// Random calls. For each call, every possible bit of each field is changed in turn.
TEST(LocalFailure, KeysOfCallsDifferAsTheCallsDo) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    Envelope call;
    call.sequence = random() % 1000;
    call.count = random() >> (random() % 64);
    call.root = static_cast<std::uint32_t>(random() >> (32 + random() % 32));
    call.op = static_cast<std::uint8_t>(random() % 11);
    call.type = static_cast<std::uint8_t>(random() % 18);
    call.reduce = static_cast<std::uint8_t>(random() % 23);
    if (i % 4 == 0) call.plan = static_cast<std::uint32_t>(random());
    if (i % 5 == 0) call.scale.after = 0.25;
    std::vector<Envelope> all{call};
    const auto change = [&](auto Envelope::* field, int bits) {
      for (int bit = 0; bit < bits; ++bit) {
        Envelope other = call;
        using Field = std::remove_reference_t<decltype(other.*field)>;
        other.*field = static_cast<Field>(other.*field ^ (Field{1} << bit));
        all.push_back(other);
      }
    };
    change(&Envelope::count, 64), change(&Envelope::root, 32), change(&Envelope::plan, 32);
    change(&Envelope::op, 8), change(&Envelope::type, 8), change(&Envelope::reduce, 8);
    change(&Envelope::algorithm, 32), change(&Envelope::sequence, 64);
    Envelope scaled = call;
    scaled.scale.after = 0.5;
    all.push_back(scaled);
    std::set<std::uint64_t> keys;
    for (const Envelope& each : all) keys.insert(call_key(each, 7));
    keys.insert(call_key(call, 5));  // the earlier content of a slot
    EXPECT_EQ(keys.size(), all.size() + 1);
  }
}

// A rank that fails gives the other ranks time to leave its buffers.
TEST(LocalFailure, AFailedRankWaitsForRanksThatStillReadItsBuffer) {
  LocalRanks host({.size = 2});
  std::atomic<bool> reading{false};
  constexpr std::uint64_t kCount = std::uint64_t{1} << 20;
  host.run([&](int rank, LocalEngine& engine) {
    auto* const in = static_cast<std::uint32_t*>(host.heap()->allocate(2 * kCount * 4).value());
    const Call call = gather(in, kCount);
    std::fill(in, in + kCount / 2, 5u);
    if (rank == 0) {
      std::thread killer([&] {
        while (!reading) std::this_thread::yield();
        host.abort(Status(Code::kRemote, "told so"));
      });
      static_cast<void>(run_by(engine, "push", call));
      // From now on no rank may read this buffer.
      std::memset(in, 0xFF, kCount * 2);
      killer.join();
    } else {
      reading = true;
      static_cast<void>(run_by(engine, "push", call));
      for (std::uint64_t i = 0; i < kCount / 2; ++i) ASSERT_NE(in[kCount + i], ~0u);
    }
  });
}

TEST(LocalFailure, ADeadRankIsNotWaitedFor) {
  using Clock = std::chrono::steady_clock;
  // A wait for a living rank would take 100 ms. One quick try is enough: other work may delay the
  // other tries.
  auto quickest = Clock::duration::max();
  const auto patience = Clock::now() + std::chrono::minutes(1);
  while (quickest >= std::chrono::milliseconds(80) && Clock::now() < patience) {
    LocalRanks host({.size = 2});
    std::vector<std::uint32_t> data(4, 1);
    auto killed = Clock::time_point::max();
    host.run([&](int rank, LocalEngine& engine) {
      if (rank == 1) return;
      std::thread killer([&] {
        killed = Clock::now();
        host.abort(Status(Code::kRemote, "rank 1 died", 1));
        engine.lost(1);
      });
      EXPECT_EQ(run_by(engine, "staged", allreduce_of(data)).culprit(), 1);
      const auto ended = Clock::now();
      killer.join();
      quickest = std::min(quickest, ended - killed);
    });
  }
  EXPECT_LT(quickest, std::chrono::milliseconds(80));
}

TEST(LocalFailure, AFailedRanksBuffersAreLeftAloneByALaterRank) {
  constexpr int kSize = 3;
  constexpr std::uint64_t kCount = std::uint64_t{1} << 18;
  LocalRanks host({.size = kSize});
  std::atomic<bool> gone{false};
  std::atomic<int> late{0};
  std::atomic<int> done{0};
  host.run([&](int rank, LocalEngine& engine) {
    auto* const in = static_cast<std::uint32_t*>(host.heap()->allocate(4 * kCount * 4).value());
    std::fill(in, in + 4 * kCount, 5u);
    const Call call = gather(in, kCount);
    const Envelope sent = envelope(call, 1, 0);
    if (rank == 0) {
      host.abort(Status(Code::kRemote, "told so"));
      EXPECT_EQ(run_by(engine, "push", call).code(), Code::kRemote);
      std::fill(in, in + 4 * kCount, ~0u);
      gone = true;
      while (done != kSize - 1) std::this_thread::yield();
      EXPECT_EQ(std::count(in, in + 4 * kCount, ~0u), 4 * kCount);
      return;
    }
    while (!gone) std::this_thread::yield();
    engine.begin(call, sent, find(call.op, "push"));
    ++late;
    while (late != kSize - 1) std::this_thread::yield();  // so that the ranks wait for rank 0 only
    EXPECT_EQ(engine.finish().code(), Code::kRemote);
    EXPECT_EQ(std::count(in, in + 4 * kCount, ~0u), 0);
    ++done;
  });
}

}  // namespace
}  // namespace hccl::local
