// Probing: all ranks get the same costs, whatever their clocks show, and stop when the time is up.
// The clocks are simulated, so no result depends on the machine.
#include "hccl/select/probe.h"

#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <functional>
#include <mutex>
#include <set>
#include <tuple>

#include "hccl/select/algorithms.h"
#include "hccl/select/presets.h"
#include "tests/support/threads.h"

namespace hccl::select {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// Ranks as threads. Each rank has a clock, which an operation advances by the given time.
class Ranks {
 public:
  /// Returns the nanoseconds of an operation on a rank.
  using Takes = std::function<double(int rank, const Call& call, std::string_view algorithm)>;

  Ranks(int size, Takes takes) : size_(size), takes_(std::move(takes)), barrier_(size) {}

  template <class Body>
  void run(Body body) {
    testing::on_threads(size_, [&](int rank) {
      nanoseconds time{0};
      ProbeRuns runs;
      runs.barrier = "meet";
      runs.allreduce = "agree";
      runs.now = [&] { return ProbeClock::time_point(time); };
      runs.run = [&](const Call& call, std::string_view algorithm) {
        if (algorithm == "meet") barrier_.arrive_and_wait();
        if (algorithm == "agree") largest(call);
        time += nanoseconds(static_cast<std::int64_t>(takes_(rank, call, algorithm)));
        return Status();
      };
      body(rank, time, runs);
    });
  }

 private:
  void largest(const Call& call) {
    const auto* const in = static_cast<const double*>(call.in);
    {
      const std::lock_guard lock(mutex_);
      merged_.resize(std::max<std::size_t>(merged_.size(), call.count), -1e300);
      for (std::size_t i = 0; i < call.count; ++i) merged_[i] = std::max(merged_[i], in[i]);
    }
    barrier_.arrive_and_wait();
    std::copy_n(merged_.begin(), call.count, static_cast<double*>(call.out));
    barrier_.arrive_and_wait();
    {
      const std::lock_guard lock(mutex_);
      merged_.clear();
    }
    barrier_.arrive_and_wait();
  }

  int size_;
  Takes takes_;
  std::barrier<> barrier_;
  std::mutex mutex_;
  std::vector<double> merged_;
};

bool is_trial(std::string_view algorithm) { return algorithm != "meet" && algorithm != "agree"; }

TEST(Timer, GivesTheTimeOfTheSlowestRank) {
  Ranks ranks(3, [](int rank, const Call&, std::string_view algorithm) {
    return is_trial(algorithm) ? 1e5 + rank : 0;
  });
  ranks.run([](int, nanoseconds&, const ProbeRuns& runs) {
    Timer timer(runs, milliseconds(1000));
    std::vector<std::byte> data(64);
    Call call{.in = data.data(), .out = data.data()};
    const auto time = timer.time(call, "any", 64, 0);
    ASSERT_TRUE(time.ok() && time->has_value());
    EXPECT_EQ(**time, 1e5 + 2);
  });
}

TEST(Timer, StopsForAllWhenOneRankIsLate) {
  std::array<int, 4> trials{};
  Ranks ranks(4, [&](int rank, const Call&, std::string_view algorithm) {
    if (!is_trial(algorithm)) return 0.0;
    ++trials[static_cast<std::size_t>(rank)];
    return rank == 2 ? 7e6 : 0.0;  // the other ranks' clocks do not advance
  });
  ranks.run([](int, nanoseconds&, const ProbeRuns& runs) {
    Timer timer(runs, milliseconds(100));
    std::vector<std::byte> data(64);
    Call call{.in = data.data(), .out = data.data()};
    for (int i = 0; i < 1000; ++i) {
      const auto time = timer.time(call, "any", 64, 7e6);
      ASSERT_TRUE(time.ok());
      if (!time->has_value()) break;
    }
    EXPECT_GE(timer.spent(), 50e6);
    EXPECT_LE(timer.spent(), 120e6);
  });
  for (const int each : trials) EXPECT_EQ(each, trials[0]);
}

TEST(Timer, AFailureEndsIt) {
  ProbeRuns runs;
  runs.run = [](const Call&, std::string_view) { return Status(Code::kRemote, "gone"); };
  Timer timer(runs, milliseconds(100));
  std::vector<std::byte> data(64);
  Call call{.in = data.data(), .out = data.data()};
  EXPECT_EQ(timer.time(call, "any", 64, 0).status().code(), Code::kRemote);
}

// Probes `size` ranks, and checks that all of them get the same costs.
LocalCosts probed(int size, bool shared_cores, Ranks::Takes takes,
                  nanoseconds budget = milliseconds(50), nanoseconds* spent = nullptr) {
  std::vector<LocalCosts> costs(static_cast<std::size_t>(size));
  std::vector<local::Tuning> tunings(static_cast<std::size_t>(size));
  Ranks ranks(size, [&](int rank, const Call& call, std::string_view algorithm) {
    const bool streams =
        tunings[static_cast<std::size_t>(rank)].stream_from != local::Tuning{}.stream_from;
    return takes(streams ? -1 - rank : rank, call, algorithm);
  });
  ranks.run([&](int rank, nanoseconds& time, const ProbeRuns& runs) {
    std::vector<std::byte> ordinary(2 * kProbeBytes), device(2 * kProbeBytes);
    LocalProbe where;
    where.topology = {size, shared_cores, true};
    where.ordinary = ordinary.data();
    where.shared = device.data();
    where.set_tuning = [&, rank](const local::Tuning& tuning) {
      tunings[static_cast<std::size_t>(rank)] = tuning;
    };
    const auto found = probe_local(runs, where, budget);
    ASSERT_TRUE(found.ok()) << found.status().message();
    costs[static_cast<std::size_t>(rank)] = *found;
    if (rank == 0 && spent != nullptr) *spent = time;
  });
  for (const LocalCosts& each : costs) EXPECT_EQ(each, costs[0]);
  return costs[0];
}

// The time of the call in the preset.
double usual(int size, const Call& call, std::string_view algorithm) {
  const LocalCosts preset = local_preset({size, false, true}, false);
  const Curve* const curve = preset.find(algorithm, kind_of(call.op));
  if (curve == nullptr) return 100;
  const std::uint64_t blocks = call.op == Op::kAllToAll ? static_cast<std::uint64_t>(size) : 1;
  return curve->ns(call.count * size_of(call.type) * blocks);
}

TEST(ProbeLocal, FindsOutWhetherCoresAreFar) {
  for (const bool far : {false, true}) {
    for (const bool shared_cores : {false, true}) {
      const LocalCosts costs =
          probed(3, shared_cores, [&](int rank, const Call&, std::string_view a) {
            return is_trial(a) ? ((rank < 0) == far ? 1000.0 : 2000.0) : 0.0;
          });
      EXPECT_EQ(costs.far(), far);
    }
  }
}

TEST(ProbeLocal, MeasuresAlgorithmsAgainstEachOther) {
  for (const double factor : {0.5, 2.0}) {
    const LocalCosts costs =
        probed(2, false, [&](int, const Call& call, std::string_view algorithm) {
          if (!is_trial(algorithm)) return 0.0;
          return usual(2, call, algorithm) * (algorithm == "cma" ? factor : 1);
        });
    const LocalCosts preset = local_preset({2, false, true}, false);
    for (const CurveKind kind : {CurveKind::kFold, CurveKind::kMove, CurveKind::kBroadcast}) {
      const auto ratio = [&](const char* name) {
        return costs.find(name, kind)->ns(1 << 20) / preset.find(name, kind)->ns(1 << 20);
      };
      EXPECT_NEAR(ratio("cma"), factor, 0.01);
      EXPECT_NEAR(ratio("staged"), 1, 0.01);
      EXPECT_NEAR(ratio("push"), 1, 0.01);
    }
  }
}

bool can_run(std::string_view algorithm, Op op, std::uint64_t bytes,
             const local::Topology& topology) {
  const local::Algorithm* const found = local::find(op, algorithm);
  return found != nullptr &&
         found->refuse({op, DataType::kFp32, bytes, true, true}, topology) == "";
}

TEST(ProbeLocal, MeasuresEveryAlgorithmThatCanRun) {
  std::set<std::tuple<Op, std::string_view, std::uint64_t>> seen;
  probed(4, false, [&](int rank, const Call& call, std::string_view algorithm) {
    if (!is_trial(algorithm)) return 0.0;
    const std::uint64_t blocks = call.op == Op::kAllToAll ? 4 : 1;
    if (rank == 0) seen.insert({call.op, algorithm, call.count * blocks * 4});
    return usual(4, call, algorithm) / 20;  // fast enough to probe everything in time
  });
  for (const Op op : {Op::kAllReduce, Op::kAllToAll, Op::kBroadcast}) {
    for (const std::uint64_t bytes : {8u << 10, 64u << 10, 1u << 20}) {
      for (const std::string_view each : local_names()) {
        EXPECT_EQ(seen.contains({op, each, bytes}), can_run(each, op, bytes, {4, false, true}))
            << to_string(op) << " of " << bytes << " bytes by " << each;
      }
    }
  }
}

// An algorithm without costs in the preset takes half the time of `staged`, on a machine that is
// slower than the preset's.
TEST(ProbeLocal, AnAlgorithmWithoutBuiltInCostsIsMeasured) {
  for (const bool shared_cores : {false, true}) {
    const local::Topology topology{3, shared_cores, true};
    for (const std::string_view lacking : local_names()) {
      if (lacking == kStandard) continue;
      LocalCosts preset = local_preset(topology, false);
      std::erase_if(preset.curves, [&](const Curve& each) { return each.algorithm == lacking; });
      const auto takes = [&](int, const Call& call, std::string_view algorithm) {
        if (!is_trial(algorithm)) return 0.0;
        const Curve* const known = preset.find(algorithm, kind_of(call.op));
        const Curve* const as = known != nullptr ? known : preset.find(kStandard, kind_of(call.op));
        const std::uint64_t blocks = call.op == Op::kAllToAll ? 3 : 1;
        return as->ns(call.count * blocks * 4) * (known != nullptr ? 3 : 1.5);
      };
      Ranks(3, takes).run([&](int, nanoseconds&, const ProbeRuns& runs) {
        std::vector<std::byte> ordinary(2 * kProbeBytes), device(2 * kProbeBytes);
        const LocalProbe where{topology, ordinary.data(), device.data(), {}};
        Timer timer(runs, milliseconds(1000));
        const auto found = compare_local(timer, where, preset);
        ASSERT_TRUE(found.ok()) << found.status().message();
        for (const Op op : {Op::kAllReduce, Op::kAllToAll, Op::kBroadcast}) {
          if (!can_run(lacking, op, local::Slot::kPayload, topology)) continue;
          const Curve* const curve = found->find(lacking, kind_of(op));
          ASSERT_NE(curve, nullptr) << lacking << " " << to_string(op);
          for (const Curve::Point& point : curve->points) {
            const double standard = found->find(kStandard, kind_of(op))->ns(point.bytes);
            EXPECT_NEAR(static_cast<double>(point.ns) / standard, 0.5, 0.01);
          }
        }
        CostTable table;
        table.entries.push_back({{"0.1.0", "cpu", "shm", 1, 3}, *found, {}});
        EXPECT_TRUE(table.check().ok()) << table.check().message();
      });
    }
  }
}

TEST(ProbeLocal, ThePresetStandsWhereCoresAreShared) {
  const LocalCosts costs = probed(4, true, [&](int, const Call&, std::string_view algorithm) {
    return is_trial(algorithm) ? 12345.0 : 0.0;
  });
  const LocalCosts preset = local_preset({4, true, true}, false);
  for (const Curve& each : preset.curves) EXPECT_EQ(*costs.find(each.algorithm, each.kind), each);
  EXPECT_EQ(costs.tuning.chunk, preset.tuning.chunk);
}

TEST(ProbeLocal, EndsSoonAfterItsBudget) {
  nanoseconds spent{0};
  // Every operation takes 5 ms: the machine is very slow.
  const LocalCosts costs = probed(
      2, false, [](int, const Call&, std::string_view) { return 5e6; }, milliseconds(50), &spent);
  EXPECT_LE(spent, milliseconds(120));
  CostTable table;
  table.entries.push_back({{"0.1.0", "cpu", "shm", 1, 2}, costs, {}});
  EXPECT_TRUE(table.check().ok());
}

TEST(ProbeMessages, GivesCostsThatCanBe) {
  std::array<MessageCosts, 4> costs;
  Ranks ranks(4, [](int rank, const Call& call, std::string_view algorithm) {
    if (!is_trial(algorithm)) return 10.0;
    return 1e4 + static_cast<double>(call.count) * (algorithm == "ring" ? 3 : 2) + rank;
  });
  ranks.run([&](int rank, nanoseconds&, const ProbeRuns& runs) {
    const auto found = probe_messages(runs, 4, milliseconds(600));
    ASSERT_TRUE(found.ok()) << found.status().message();
    costs[static_cast<std::size_t>(rank)] = *found;
  });
  EXPECT_TRUE(costs[0].check().ok()) << costs[0].check().message();
  EXPECT_EQ(costs[0].steps.size(), 6u);
  for (const MessageCosts& each : costs) EXPECT_EQ(each, costs[0]);
}

}  // namespace
}  // namespace hccl::select
