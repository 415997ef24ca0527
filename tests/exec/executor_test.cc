// The executor over links that wake it: it sleeps only when nothing moves.
#include "hccl/exec/executor.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "tests/support/ranks.h"

namespace hccl::exec {
namespace {

using std::chrono::seconds;
using testing::Rank;
using testing::run_ranks;

/// A mesh that sleeps until it is woken, even if a short nap is asked for; a sleep of 15 s means
/// that a wake-up was lost.
class Sleepy final : public transport::Mesh, public Sleeper {
 public:
  explicit Sleepy(std::unique_ptr<transport::Mesh> inner) : inner_(std::move(inner)) {}
  bool overslept() const { return overslept_; }

  std::string_view name() const override { return inner_->name(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void send(transport::Request& request, int peer, std::uint32_t lane,
            std::span<const std::byte> bytes) override {
    inner_->send(request, peer, lane, bytes);
  }
  void recv(transport::Request& request, int peer, std::uint32_t lane,
            std::span<std::byte> bytes) override {
    inner_->recv(request, peer, lane, bytes);
  }
  bool progress() override { return inner_->progress(); }
  Sleeper& sleeper() override { return *this; }
  void abort(Status status) override { inner_->abort(std::move(status)); }

  std::uint32_t prepare() override { return inner_->sleeper().prepare(); }
  void sleep(std::uint32_t ticket, std::chrono::nanoseconds) override {
    const Deadline end = Deadline::after(seconds(15));
    inner_->sleeper().sleep(ticket, overslept_ ? std::chrono::milliseconds(1) : seconds(16));
    overslept_ = overslept_ || end.expired();
  }
  void awake() override { inner_->sleeper().awake(); }

 private:
  std::unique_ptr<transport::Mesh> inner_;
  bool overslept_ = false;
};

TEST(Executor, SleepsOnlyWhenNothingMoves) {
  run_ranks(2, [](Rank& rank) {
    Sleepy mesh(rank.open("shm").value());
    Executor executor(mesh, std::size_t{1} << 20, {0, 1});
    const Waiter waiter{.deadline = Deadline::after(seconds(120)), .policy = kSleepAtOnce};
    constexpr std::uint64_t kCount = std::uint64_t{1} << 20;
    std::vector<std::uint32_t> in(kCount), out(kCount);
    for (std::uint64_t round = 1; round <= 20 && !mesh.overslept(); ++round) {
      std::iota(in.begin(), in.end(), static_cast<std::uint32_t>(rank.rank() + round));
      const Call call{Op::kAllReduce, in.data(),         out.data(),
                      kCount,         DataType::kUint32, ReduceOp::kSum};
      schedule::Choice ring;
      ring.algorithm = schedule::find(Op::kAllReduce, "ring");
      const Status status = executor.run(call, ring, round, waiter);
      ASSERT_TRUE(status.ok()) << status.message();
      for (std::uint64_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(out[i], static_cast<std::uint32_t>(2 * (i + round) + 1)) << i;
      }
    }
    EXPECT_FALSE(mesh.overslept()) << "slept for 15 s, though bytes were there";
  });
}

}  // namespace
}  // namespace hccl::exec
