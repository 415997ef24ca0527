// A mailbox and one simulated peer: bytes that do not come, a peer that has left, and bytes that
// never end.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "hccl/base/log.h"
#include "hccl/core/mailbox.h"
#include "transport/nap_sleeper.h"

namespace hccl::testing {
namespace {

using core::Mailbox;
using core::Message;
using core::MessagePtr;
using core::OpenedMesh;
using Clock = std::chrono::steady_clock;

Deadline in_half_a_minute() { return Deadline::after(std::chrono::seconds(30)); }

// The steps of the simulated peer.
struct Script {
  std::vector<std::function<void(class Peer&)>> steps;  // run one by one
  std::atomic<std::size_t> allowed = 0, done = 0;       // numbers of steps
  std::atomic<bool> busy = false;                       // bytes of some other message always move

  /// Lets the script run up to this number of all its steps. Returns whether they have run.
  bool run(std::size_t steps_of_all) {
    allowed = steps_of_all;
    const Deadline end = in_half_a_minute();
    while (done != steps_of_all && !end.expired()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return done == steps_of_all;
  }
};

// Rank 1 of two ranks.
class Peer final : public transport::Mesh {
 public:
  explicit Peer(Script& script) : script_(script) {}
  std::string_view name() const override { return "test"; }
  int rank() const override { return 0; }
  int size() const override { return 2; }
  Sleeper& sleeper() override { return sleeper_; }
  void send(transport::Request& request, int peer, std::uint32_t lane,
            std::span<const std::byte> bytes) override {
    request.begin(peer, lane, nullptr, bytes.size());
    request.finish(why_);
  }
  void recv(transport::Request& request, int peer, std::uint32_t lane,
            std::span<std::byte> bytes) override {
    request.begin(peer, lane, bytes.data(), bytes.size());
    if (!why_.ok()) return request.finish(why_);
    waiting_.at(lane).push_back(&request);
  }
  bool progress() override {
    if (!why_.ok()) return false;
    if (script_.done == script_.allowed) return script_.busy;
    script_.steps[script_.done](*this);
    ++script_.done;
    return true;
  }
  void abort(Status why) override {
    why_ = std::move(why);
    for (std::size_t lane = 0; lane < waiting_.size(); ++lane) {
      while (!waiting_[lane].empty()) fail(lane, why_);
    }
  }

  /// The header of an eager message with tag 7 and this number of bytes arrives.
  void announce(std::uint64_t bytes) {
    transport::Request& header = take(0);
    std::memset(header.data_, 0, header.size_);
    header.data_[0] = std::byte{1};
    header.data_[4] = std::byte{7};
    std::memcpy(header.data_ + 8, &bytes, sizeof bytes);
    header.finish({});
  }
  /// The oldest receive of the lane ends with this error.
  void fail(std::size_t lane, const Status& why) { take(lane).finish(why); }

 private:
  transport::Request& take(std::size_t lane) {
    transport::Request& first = *waiting_.at(lane).front();
    waiting_[lane].pop_front();
    return first;
  }

  Script& script_;
  transport::NapSleeper sleeper_;
  Status why_;
  std::array<std::deque<transport::Request*>, 3> waiting_;  // by lane
};

std::shared_ptr<Mailbox> mailbox(Script& script, Mailbox::HasLeft has_left = {}) {
  return std::make_shared<Mailbox>(
      0, 2, "box",
      [&script](const AbortFlag&) -> Result<OpenedMesh> {
        return OpenedMesh{std::make_unique<Peer>(script), {}};
      },
      WaitPolicy{}, make_logger("off", "rank 0"), nullptr, std::move(has_left));
}

const Status kGone(Code::kRemote, "rank 1 closed its connection", 1);

// The header of a message arrives before its receive is posted, and the bytes never do. The receive
// fails, whether it is posted before the failure or after it.
TEST(MailboxPeer, AMessageWhoseBytesDoNotComeFails) {
  for (const bool all_lanes : {true, false}) {
    for (const bool early : {true, false}) {
      for (const int source : {1, Message::kAnyRank}) {
        Script script;
        script.steps = {[](Peer& peer) { peer.announce(1000); },
                        [=](Peer& peer) {
                          peer.fail(1, kGone);
                          if (all_lanes) peer.fail(0, kGone);
                        }};
        const auto box = mailbox(script, [](int) { return true; });
        box->start();
        ASSERT_TRUE(script.run(1));
        std::vector<std::byte> bytes(1000);
        MessagePtr receive;
        const auto post = [&] { receive = box->recv(source, 7, bytes.data(), bytes.size(), {}); };
        if (early) post();
        ASSERT_TRUE(script.run(2));
        if (!early) post();
        ASSERT_TRUE(receive->wait(in_half_a_minute()).ok());
        EXPECT_EQ(receive->status().code(), Code::kRemote) << receive->status().message();
        EXPECT_EQ(receive->status().culprit(), 1);
        box->stop();
      }
    }
  }
}

// A message for a peer that has closed its connection waits for a report of the peer's death. If
// the peer has left in good order, the message fails at once.
TEST(MailboxPeer, AMessageForAPeerThatHasLeftFailsWithoutAWait) {
  std::vector<Clock::duration> took;
  for (const bool left : {true, false}) {
    Script script;
    script.steps = {[](Peer& peer) { peer.fail(0, kGone); }};
    const auto box = mailbox(script, [left](int rank) { return left && rank == 1; });
    std::byte byte{};
    const MessagePtr waits = box->recv(1, 7, &byte, 1, {});
    box->start();
    const auto start = Clock::now();
    ASSERT_TRUE(script.run(1));
    const MessagePtr later = box->send(1, 7, &byte, 1, {});
    for (const MessagePtr& each : {waits, later}) {
      ASSERT_TRUE(each->wait(in_half_a_minute()).ok());
      EXPECT_EQ(each->status().code(), Code::kRemote);
    }
    took.push_back(Clock::now() - start);
    box->stop();
  }
  EXPECT_LT(2 * took[0], took[1]);
}

// Rank 2 aborts, and rank 1 leaves because of that. The failure of a message for rank 1 is the
// abort.
TEST(MailboxPeer, AVerdictPrecedesThePeerThatLeftBecauseOfIt) {
  Script script;
  script.steps = {[](Peer& peer) { peer.fail(0, kGone); }};
  std::atomic<const AbortFlag*> ended{nullptr};
  std::atomic<bool> aborted{false};
  const auto has_left = [&](int) {
    while (aborted && !ended.load()->raised()) std::this_thread::yield();
    return aborted.load();
  };
  const auto box = std::make_shared<Mailbox>(
      0, 2, "box",
      [&](const AbortFlag& flag) -> Result<OpenedMesh> {
        ended = &flag;
        return OpenedMesh{std::make_unique<Peer>(script), {}};
      },
      WaitPolicy{}, make_logger("off", "rank 0"), nullptr, has_left);
  std::byte byte{};
  const MessagePtr receive = box->recv(1, 7, &byte, 1, {});
  box->start();
  ASSERT_TRUE(script.run(1));
  aborted = true;
  box->end(Status(Code::kUnavail, "rank 2 aborted"));
  ASSERT_TRUE(receive->wait(in_half_a_minute()).ok());
  EXPECT_EQ(receive->status().message(), "rank 2 aborted");
  box->stop();
}

// Callbacks run, new messages are posted and the mailbox ends while the bytes of another message
// keep moving.
TEST(MailboxPeer, BytesThatKeepMovingHoldNobodyUp) {
  Script script;
  script.steps = {[](Peer& peer) { peer.announce(1); }};
  const auto box = mailbox(script);
  std::byte byte{}, other{};
  std::promise<void> called;
  const MessagePtr first = box->recv(1, 7, &byte, 1, [&](const Status&) { called.set_value(); });
  box->start();
  script.busy = true;
  auto over = std::async(std::launch::async, [&] {
    const MessagePtr second = box->recv(1, 8, &other, 1, {});
    const bool ran = script.run(1) && called.get_future().wait_for(std::chrono::seconds(20)) ==
                                          std::future_status::ready;
    const Status late = second->wait(Deadline::after(std::chrono::milliseconds(10)));
    EXPECT_EQ(late.code(), Code::kTimeout);
    box->end(Status(Code::kUnavail, "over"));
    EXPECT_TRUE(second->wait(in_half_a_minute()).ok());
    EXPECT_EQ(second->status().code(), Code::kUnavail);
    return ran;
  });
  EXPECT_EQ(over.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  script.busy = false;  // so that the test ends in any case
  EXPECT_TRUE(over.get());
  EXPECT_TRUE(first->status().ok());
  box->stop();
}

}  // namespace
}  // namespace hccl::testing
