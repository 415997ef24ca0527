// The host path where something is wrong: ranks that are missing, ended or refused, buffers that
// are no memory, calls that differ. Who is to blame is named, and nobody's memory is touched
// afterwards.
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
#include <string>
#include <thread>
#include <vector>

#include "hccl/schedule/algorithm.h"
#include "tests/support/host_ranks.h"

namespace hccl::exec::host {
namespace {

using testing::HostRanks;

/// A process of its own that does nothing; its end is not waited for.
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

Ways cma_always() {
  Ways ways;
  ways.chunk = 1 << 17;
  ways.cma_moves_from = ways.cma_folds_from = 1;
  ways.cma_moves_most = ways.cma_folds_most = 1 << 25;
  return ways;
}

Call allreduce_of(std::vector<std::uint32_t>& data) {
  Call call;
  call.op = Op::kAllReduce;
  call.in = call.out = data.data();
  call.count = data.size();
  call.type = DataType::kUint32;
  return call;
}

using Groups = std::vector<std::vector<int>>;

/// An allgather of `count` elements in all, whose output lies behind its input's room.
Call gather(std::uint32_t* in, std::uint64_t count) {
  Call call;
  call.op = Op::kAllGather;
  call.in = in;
  call.out = in + count;
  call.count = count / 2;
  call.type = DataType::kUint32;
  return call;
}

// Whoever does not come is named, and nobody else: neither a rank on its core, which cannot tell
// other cores without it, nor who is on another one.
TEST(HostPathFailure, WhoDoesNotComeIsNamed) {
  constexpr int kSize = 4;
  constexpr std::size_t kCounts[kSize] = {2, 3000, 100000, 100};
  for (const Groups& groups : {Groups{}, Groups{{0, 2}, {1, 3}}, Groups{{0, 1, 3}, {2}}}) {
    for (int absent = 0; absent < kSize; ++absent) {
      const std::size_t count = kCounts[absent];
      std::mutex mutex;
      std::vector<std::vector<int>> named;
      Watch watch;
      watch.timeout = std::chrono::milliseconds(600);
      watch.stalled = [&](std::uint64_t, const std::string&, const std::vector<int>& awaited) {
        const std::lock_guard lock(mutex);
        named.push_back(awaited);
      };
      HostRanks host(kSize, Ways::for_host(kSize, true), true, {}, watch);
      host.run([&](int rank, HostPath& path) {
        path.set_core_groups(groups);
        if (rank == absent) return;
        std::vector<std::uint32_t> data(count);
        const Call call = allreduce_of(data);
        const Status status = path.run(call, envelope(call, 1, 0));
        EXPECT_EQ(status.code(), Code::kTimeout) << status.message();
        EXPECT_TRUE(status.message().ends_with("from rank " + std::to_string(absent)))
            << status.message();
      });
      ASSERT_FALSE(named.empty());
      for (const auto& awaited : named) EXPECT_EQ(awaited, std::vector<int>{absent});
    }
  }
}

// Turns stop at the rank that does not take its own, and it alone is named.
TEST(HostPathFailure, WhoDoesNotTakeItsTurnIsNamed) {
  constexpr int kSize = 4;
  for (int each = 0; each < 2 * kSize; ++each) {
    const int absent = each % kSize;
    const Groups groups = each < kSize ? Groups{} : Groups{{0, 2}, {1, 3}};
    Ways ways;
    ways.chain_from = 1;
    std::mutex mutex;
    std::vector<std::vector<int>> named;
    Watch watch;
    watch.timeout = std::chrono::milliseconds(600);
    watch.stalled = [&](std::uint64_t, const std::string&, const std::vector<int>& awaited) {
      const std::lock_guard lock(mutex);
      named.push_back(awaited);
    };
    HostRanks host(kSize, ways, true, {}, watch);
    host.run([&](int rank, HostPath& path) {
      path.set_core_groups(groups);
      std::vector<float> data(1 << 20);
      Call call;
      call.op = Op::kAllReduce;
      call.in = call.out = data.data();
      call.count = data.size();
      call.type = DataType::kFp32;
      const auto entered = path.enter(call, envelope(call, 1, 0));
      if (rank == absent) return;
      EXPECT_EQ(path.finish(entered).code(), Code::kTimeout);
    });
    ASSERT_FALSE(named.empty());
    for (const auto& awaited : named) EXPECT_EQ(awaited, std::vector<int>{absent});
  }
}

// Another process behind the number (as in containers with numbers of their own), or none that the
// kernel lets this one copy from: all ranks go on without.
TEST(HostPathFailure, RanksThatCannotBeReachedByTheKernelAreNot) {
  Child stranger;
  ASSERT_GT(stranger.process(), 0);
  for (const pid_t process : {stranger.process(), pid_t{0}, pid_t{-1}}) {
    HostRanks host(3, cma_always(), true);
    host.set_process(1, process);
    host.run([&](int rank, HostPath& path) {
      const auto attached = path.attach();
      ASSERT_TRUE(attached.ok()) << attached.status().message();
      EXPECT_FALSE(*attached);
      std::vector<std::uint32_t> data(50000, static_cast<std::uint32_t>(rank));
      const Call call = allreduce_of(data);
      ASSERT_TRUE(path.run(call, envelope(call, 1, 0)).ok());
      EXPECT_EQ(path.way(), Way::kStage);
      for (const std::uint32_t value : data) ASSERT_EQ(value, 3U);
    });
  }
}

// A process that ends in the operation is not blamed on a buffer: whoever watches the ranks has the
// word, and if nobody does, it is the one that is waited for.
TEST(HostPathFailure, AnEndedProcessIsWaitedForByName) {
  Child child;
  const pid_t process = child.process();
  child.end();
  Watch watch;
  watch.timeout = std::chrono::milliseconds(300);
  HostRanks host(2, cma_always(), true, {}, watch);
  host.set_process(1, process);
  host.run([&](int rank, HostPath& path) {
    path.set_attached(true);
    std::vector<std::uint32_t> data(50000, 1);
    const Call call = allreduce_of(data);
    const Status status = path.run(call, envelope(call, 1, 0));
    EXPECT_EQ(status.code(), Code::kTimeout) << status.message();
    if (rank == 0) {
      EXPECT_NE(status.message().find("from rank 1"), std::string::npos) << status.message();
    }
  });
}

// A rank that copies for long sees that the operation has failed before it is at its end: by then
// the others have their buffers back.
TEST(HostPathFailure, CopiesEndSoonAfterAFailure) {
  HostRanks host(2, cma_always(), false);
  std::atomic<bool> told{false};
  host.run([&](int rank, HostPath& path) {
    ASSERT_TRUE(*path.attach());
    std::vector<std::uint32_t> in(std::size_t{4} << 20, rank == 1 ? 7 : 0);
    std::vector<std::uint32_t> out(std::size_t{4} << 20, 0);
    Call call;
    call.op = Op::kAllToAll;
    call.in = in.data();
    call.out = out.data();
    call.count = in.size() / 2;
    call.type = DataType::kUint32;
    const auto entered = path.enter(call, envelope(call, 1, 0));
    if (rank == 0) {
      // It has posted, and is told while rank 1 is about to copy.
      host.abort(Status(Code::kRemote, "rank 9 died", 9));
      told = true;
      const Status status = path.finish(entered);
      EXPECT_EQ(status.code(), Code::kRemote) << status.message();
      EXPECT_EQ(std::count(out.begin(), out.end(), 7U), 0) << "rank 1 copied what nobody wants";
      return;
    }
    while (!told) std::this_thread::yield();
    EXPECT_EQ(path.finish(entered).code(), Code::kRemote);
  });
}

// Whose buffer is no memory is told by all that have to do with it.
TEST(HostPathFailure, WhoseBufferIsNoMemoryIsNamed) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  void* const sealed = ::mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(sealed, MAP_FAILED);
  Watch watch;
  watch.timeout = std::chrono::milliseconds(300);
  HostRanks host(2, cma_always(), false, {}, watch);
  host.run([&](int rank, HostPath& path) {
    ASSERT_TRUE(*path.attach());
    std::vector<std::byte> data(kBytes);
    Call call;
    call.op = Op::kBroadcast;
    call.in = call.out = rank == 1 ? sealed : data.data();
    call.count = kBytes;
    call.type = DataType::kInt8;
    const Status status = path.run(call, envelope(call, 1, 0));
    EXPECT_EQ(status.code(), Code::kPara) << status.message();
    EXPECT_EQ(status.culprit(), 1) << status.message();
  });
  ::munmap(sealed, kBytes);
}

TEST(HostPathFailure, NamesBothCallsOfAMismatchOnAllRanks) {
  constexpr int kSize = 4;
  for (const Groups& groups : {Groups{}, Groups{{0, 2}, {1, 3}}, Groups{{0, 1, 3}, {2}}}) {
    for (const std::uint64_t count : {2u, 14u, 3000u, 100000u}) {
      HostRanks host(kSize, Ways::for_host(kSize, true), true);
      host.run([&](int rank, HostPath& path) {
        path.set_core_groups(groups);
        // The others learn it before the last one has come.
        if (rank == kSize - 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        std::vector<std::uint32_t> data(100001);
        Call call = allreduce_of(data);
        call.count = count + (rank == 1 ? 1 : 0);
        const Status status = path.run(call, envelope(call, 1, 0));
        EXPECT_EQ(status.code(), Code::kPara);
        const std::string& text = status.message();
        EXPECT_NE(text.find("count " + std::to_string(count) + ","), std::string::npos) << text;
        EXPECT_NE(text.find("count " + std::to_string(count + 1) + ","), std::string::npos) << text;
        EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
      });
    }
  }
}

// All ranks, also the one that has nothing to do with it.
TEST(HostPathFailure, PairsOfAlltoallvThatDisagreeAreNamed) {
  constexpr int kSize = 3;
  HostRanks host(kSize, Ways::for_host(kSize, true), true);
  host.run([&](int rank, HostPath& path) {
    std::vector<std::uint32_t> in(20);
    std::vector<std::uint32_t> out(20);
    const Block in_blocks[] = {{0, 4}, {4, 4}, {8, 4}};
    const Block out_blocks[] = {{0, rank == 1 ? 5u : 4u}, {5, 4}, {9, 4}};
    Call call;
    call.op = Op::kAllToAllV;
    call.in = in.data();
    call.out = out.data();
    call.type = DataType::kUint32;
    call.in_blocks = in_blocks;
    call.out_blocks = out_blocks;
    const Status status = path.run(call, envelope(call, 1, 0));
    EXPECT_EQ(status.code(), Code::kPara);
    EXPECT_NE(status.message().find("rank 0 sends 4 elements to rank 1, which expects 5"),
              std::string::npos)
        << status.message();
  });
}

// Whoever fails gives the others time to leave its buffers alone.
TEST(HostPathFailure, AFailedRankWaitsForWhoStillReadsItsBuffer) {
  Ways ways;
  ways.ring_most = 0;
  HostRanks host(2, ways, true);
  std::atomic<bool> reading{false};
  constexpr std::uint64_t kCount = std::uint64_t{1} << 20;
  host.run([&](int rank, HostPath& path) {
    auto* const in = static_cast<std::uint32_t*>(host.heap()->allocate(2 * kCount * 4).value());
    const Call call = gather(in, kCount);
    std::fill(in, in + kCount / 2, 5u);
    if (rank == 0) {
      std::thread killer([&] {
        while (!reading) std::this_thread::yield();
        host.abort(Status(Code::kRemote, "told so"));
      });
      static_cast<void>(path.run(call, envelope(call, 1, 0)));
      // Nobody may read this any more.
      std::memset(in, 0xFF, kCount * 2);
      killer.join();
    } else {
      reading = true;
      static_cast<void>(path.run(call, envelope(call, 1, 0)));
      for (std::uint64_t i = 0; i < kCount / 2; ++i) ASSERT_NE(in[kCount + i], ~0u);
    }
  });
}

// Neither by a rank on the same core, nor by one on another, whoever would have told it.
TEST(HostPathFailure, AFailedRanksBuffersAreLeftAloneByWhoComesLater) {
  constexpr int kSize = 3;
  constexpr std::uint64_t kCount = std::uint64_t{1} << 18;
  for (const Groups& groups : {Groups{}, Groups{{0, 1}, {2}}, Groups{{0}, {1, 2}}}) {
    Ways ways;
    ways.ring_most = 0;
    HostRanks host(kSize, ways, true);
    std::atomic<bool> gone{false};
    std::atomic<int> late{0};
    std::atomic<int> done{0};
    host.run([&](int rank, HostPath& path) {
      path.set_core_groups(groups);
      auto* const in = static_cast<std::uint32_t*>(host.heap()->allocate(4 * kCount * 4).value());
      std::fill(in, in + 4 * kCount, 5u);
      const Call call = gather(in, kCount);
      if (rank == 0) {
        host.abort(Status(Code::kRemote, "told so"));
        EXPECT_EQ(path.run(call, envelope(call, 1, 0)).code(), Code::kRemote);
        std::fill(in, in + 4 * kCount, ~0u);
        gone = true;
        while (done != kSize - 1) std::this_thread::yield();
        EXPECT_EQ(std::count(in, in + 4 * kCount, ~0u), 4 * kCount);
      } else {
        while (!gone) std::this_thread::yield();
        const auto entered = path.enter(call, envelope(call, 1, 0));
        ++late;
        while (late != kSize - 1) std::this_thread::yield();  // so that only rank 0 is awaited
        EXPECT_EQ(path.finish(entered).code(), Code::kRemote);
        EXPECT_EQ(std::count(in, in + 4 * kCount, ~0u), 0);
        ++done;
      }
    });
  }
}

}  // namespace
}  // namespace hccl::exec::host
