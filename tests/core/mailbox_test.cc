// Messages with tags: random messages against an oracle, any source, tags out of order, messages
// before their receives, sizes that differ, and ends by abort, by destruction, or by a rank that
// leaves.
#include "hccl/core/mailbox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <new>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/core/transports.h"
#include "tests/support/sockets.h"
#include "tests/support/world.h"
#include "transport/nap_sleeper.h"

namespace hccl::testing {
namespace {

using core::Communicator;
using core::Message;
using core::MessagePtr;
using std::chrono::milliseconds;
using std::chrono::seconds;

using Bytes = std::vector<std::byte>;

Config config_of(const std::string& transport) {
  Config config;
  config.transport = transport;
  config.connect_timeout = seconds(30);
  config.exec_timeout = seconds(30);
  config.flight_recorder_dir = "off";
  config.log_level = "off";
  return config;
}

Deadline soon() { return Deadline::after(seconds(30)); }

// The `number`-th message with this tag from rank `from` to `to`.
Bytes content(int from, int to, int tag, int number, std::size_t bytes) {
  std::mt19937_64 random(static_cast<unsigned>(((from * 31 + to) * 97 + tag) * 1009 + number));
  Bytes data(bytes);
  for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(data.data() + at, &word, std::min(sizeof word, bytes - at));
  }
  return data;
}

std::size_t length(int from, int to, int tag, int number) {
  constexpr std::size_t kLengths[] = {0, 1, 40, 41, 1000, 16384, 16385, 100000, 700000};
  return kLengths[static_cast<std::size_t>(from * 5 + to * 3 + tag * 7 + number * 11) % 9];
}

void expect_ok(const MessagePtr& message) {
  ASSERT_TRUE(message->wait(soon()).ok()) << "not done";
  EXPECT_TRUE(message->status().ok()) << message->status().message();
}

class Mailboxes : public ::testing::TestWithParam<std::string> {};

// Every rank sends several messages of several tags to every rank, itself included. Each rank's
// order of sends and of receives is random.
TEST_P(Mailboxes, RandomMessagesArriveWhereTheyBelong) {
  constexpr int kTags = 3, kMessages = 12;
  for (const int size : {1, 2, 4}) {
    World world(size, config_of(GetParam()));
    ASSERT_TRUE(world.ok());
    world.run([&](Communicator& c) {
      struct Each {
        bool sending;
        int peer, tag;
      };
      std::vector<Each> todo;
      for (int peer = 0; peer < c.size(); ++peer) {
        for (int tag = 0; tag < kTags; ++tag) {
          for (int i = 0; i < kMessages; ++i) {
            todo.push_back({true, peer, tag});
            todo.push_back({false, peer, tag});
          }
        }
      }
      std::mt19937 random(static_cast<unsigned>(c.rank()));
      std::shuffle(todo.begin(), todo.end(), random);
      std::map<std::tuple<bool, int, int>, int> numbers;
      std::vector<MessagePtr> messages;
      std::vector<Bytes> sent, got, expected;
      std::atomic<int> called{0};
      const auto done = [&called](const Status&) { ++called; };
      for (const Each& each : todo) {
        const int number = numbers[{each.sending, each.peer, each.tag}]++;
        const int from = each.sending ? c.rank() : each.peer;
        const int to = each.sending ? each.peer : c.rank();
        const std::size_t bytes = length(from, to, each.tag, number);
        if (each.sending) {
          sent.push_back(content(from, to, each.tag, number, bytes));
          messages.push_back(
              c.mailbox().send(each.peer, each.tag, sent.back().data(), bytes, done));
        } else {
          expected.push_back(content(from, to, each.tag, number, bytes));
          got.emplace_back(bytes);
          messages.push_back(c.mailbox().recv(each.peer, each.tag, got.back().data(), bytes, done));
        }
      }
      for (const MessagePtr& each : messages) expect_ok(each);
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(got[i] == expected[i]) << i;
      const Deadline patience = soon();
      while (called != static_cast<int>(messages.size()) && !patience.expired()) {
        std::this_thread::sleep_for(milliseconds(1));
      }
      EXPECT_EQ(called, static_cast<int>(messages.size()));
    });
  }
}

TEST_P(Mailboxes, AnyRankTakesEachMessageOnceAndNamesItsSource) {
  World world(4, config_of(GetParam()));
  ASSERT_TRUE(world.ok());
  world.run([](Communicator& c) {
    for (const std::size_t bytes : {std::size_t{4}, std::size_t{50000}}) {
      const int tag = static_cast<int>(bytes);
      const std::size_t count = bytes / sizeof(int);
      if (c.rank() != 0) {
        const std::vector<int> mine(count, c.rank());
        expect_ok(c.mailbox().send(0, tag, mine.data(), bytes, {}));
        continue;
      }
      std::vector<bool> seen(4);
      for (int i = 1; i < c.size(); ++i) {
        std::vector<int> data(count, -1);
        const MessagePtr got = c.mailbox().recv(Message::kAnyRank, tag, data.data(), bytes, {});
        expect_ok(got);
        EXPECT_EQ(data, std::vector<int>(count, *got->peer()));
        EXPECT_FALSE(seen.at(static_cast<std::size_t>(*got->peer())));
        seen.at(static_cast<std::size_t>(*got->peer())) = true;
      }
    }
  });
}

// Thousands of short messages come before the first receive: the receiver holds a bounded number,
// the others wait at the sender, and collectives go on.
TEST_P(Mailboxes, MessagesBeforeTheirReceivesWait) {
  constexpr int kMessages = 3000;
  World world(2, config_of(GetParam()));
  ASSERT_TRUE(world.ok());
  world.run([](Communicator& c) {
    std::vector<std::vector<int>> data(kMessages, std::vector<int>(500, c.rank()));
    std::vector<MessagePtr> messages;
    if (c.rank() == 0) {
      for (int i = 0; i < kMessages; ++i) {
        auto& each = data[static_cast<std::size_t>(i)];
        each.assign(500, i);
        messages.push_back(c.mailbox().send(1, i, each.data(), 2000, {}));
      }
    }
    ASSERT_TRUE(c.operations().run({}).ok());
    if (c.rank() == 1) {
      for (int i = kMessages; i-- > 0;) {
        messages.push_back(
            c.mailbox().recv(0, i, data[static_cast<std::size_t>(i)].data(), 2000, {}));
      }
    }
    for (const MessagePtr& each : messages) expect_ok(each);
    for (int i = 0; i < kMessages; ++i) {
      ASSERT_EQ(data[static_cast<std::size_t>(i)], std::vector<int>(500, i));
    }
  });
}

// The memory for messages without a receive is reused: after many times as many messages as fit
// into it, a short message is still sent before its receive.
TEST_P(Mailboxes, ShortMessagesDoNotWaitForTheirReceivesInTheLongRun) {
  World world(2, config_of(GetParam()));
  ASSERT_TRUE(world.ok());
  world.run([](Communicator& c) {
    const int peer = 1 - c.rank();
    for (const std::size_t bytes : {std::size_t{30}, std::size_t{8000}}) {
      Bytes out(bytes), in(bytes);
      for (int i = 0; i < 1500; ++i) {
        const MessagePtr sent = c.mailbox().send(peer, 1, out.data(), bytes, {});
        expect_ok(c.mailbox().recv(peer, 1, in.data(), bytes, {}));
        expect_ok(sent);
      }
      out = content(c.rank(), peer, 2, 0, bytes);
      expect_ok(c.mailbox().send(peer, 2, out.data(), bytes, {}));
      ASSERT_TRUE(c.operations().run({}).ok());  // both messages are sent, and no receive is posted
      expect_ok(c.mailbox().recv(peer, 2, in.data(), bytes, {}));
      EXPECT_EQ(in, content(peer, c.rank(), 2, 0, bytes));
    }
  });
}

TEST_P(Mailboxes, SizesThatDifferFailBothAndNothingElse) {
  World world(2, config_of(GetParam()));
  ASSERT_TRUE(world.ok());
  world.run([](Communicator& c) {
    for (const std::size_t bytes : {std::size_t{16}, std::size_t{3000}, std::size_t{200000}}) {
      for (const bool early : {false, true}) {
        Bytes data(bytes + 8);
        MessagePtr message;
        if (early && c.rank() == 1) std::this_thread::sleep_for(milliseconds(30));
        if (c.rank() == 0) {
          message = c.mailbox().send(1, 1, data.data(), bytes, {});
        } else {
          message = c.mailbox().recv(0, 1, data.data(), bytes + 8, {});
        }
        ASSERT_TRUE(message->wait(soon()).ok());
        if (c.rank() == 1 || bytes > 100000) {
          EXPECT_EQ(message->status().code(), Code::kPara);
          const std::string& text = message->status().message();
          EXPECT_NE(text.find(std::to_string(bytes)), std::string::npos) << text;
          EXPECT_NE(text.find(std::to_string(bytes + 8)), std::string::npos) << text;
        }
        ASSERT_TRUE(c.operations().run({}).ok());
      }
    }
  });
}

TEST_P(Mailboxes, AnAbortEndsWhatWaitsOnAllRanks) {
  World world(3, config_of(GetParam()));
  ASSERT_TRUE(world.ok());
  std::atomic<int> posted{0};
  world.run([&](Communicator& c) {
    Bytes data(500000);
    const MessagePtr waits = c.mailbox().recv((c.rank() + 1) % 3, 9, data.data(), data.size(), {});
    ++posted;
    if (c.rank() == 1) {
      while (posted != 3) std::this_thread::sleep_for(milliseconds(1));
      std::this_thread::sleep_for(milliseconds(100));
      c.abort("because");
    }
    ASSERT_TRUE(waits->wait(soon()).ok());
    EXPECT_EQ(waits->status().code(), Code::kUnavail);
    EXPECT_NE(waits->status().message().find("rank 1"), std::string::npos);
    EXPECT_NE(waits->status().message().find("because"), std::string::npos);
    EXPECT_FALSE(c.operations().run({}).ok());
    const MessagePtr later = c.mailbox().send(0, 1, data.data(), 10, {});
    EXPECT_TRUE(later->done());
    EXPECT_EQ(later->status().code(), Code::kUnavail);
  });
}

INSTANTIATE_TEST_SUITE_P(Everywhere, Mailboxes, ::testing::ValuesIn(transports()),
                         [](const auto& info) { return info.param; });

TEST(Mailbox, EndsWithItsCommunicator) {
  std::vector<MessagePtr> left(2), to_self(2);
  std::vector<Bytes> data(2, Bytes(100000));
  {
    World world(2, config_of("auto"));
    world.run([&](Communicator& c) {
      const auto at = static_cast<std::size_t>(c.rank());
      const int other = 1 - c.rank();
      char byte = 1, in = 0;  // opens the connections for messages
      const MessagePtr first = c.mailbox().send(other, 2, &byte, 1, {});
      const MessagePtr second = c.mailbox().recv(other, 2, &in, 1, {});
      for (const MessagePtr& each : {first, second}) {
        ASSERT_TRUE(each->wait(Deadline::after(seconds(30))).ok());
      }
      left[at] = c.mailbox().recv(other, 3, data[at].data(), data[at].size(), {});
      to_self[at] = c.mailbox().send(c.rank(), 4, data[at].data(), 1, {});
      EXPECT_EQ(left[at]->wait(Deadline::after(milliseconds(20))).code(), Code::kTimeout);
      EXPECT_FALSE(to_self[at]->done());
    });
  }
  for (int rank = 0; rank < 2; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    ASSERT_TRUE(left[at] != nullptr && left[at]->done() && to_self[at]->done());
    const Status& own = to_self[at]->status();
    EXPECT_EQ(own.code(), Code::kUnavail) << own.message();
    const Status& why = left[at]->status();  // or the other rank has left first
    EXPECT_TRUE(why.code() == Code::kUnavail || why.culprit() == 1 - rank) << why.message();
  }
}

// Each rank sends to its right neighbour only.
TEST(Mailbox, MessagesInARingOpenARing) {
  constexpr int kSize = 8;
  World world(kSize, config_of("tcp"));
  ASSERT_TRUE(world.ok());
  const int before = connected_sockets();
  world.run([](Communicator& c) {
    const int right = (c.rank() + 1) % kSize, left = (c.rank() + kSize - 1) % kSize;
    for (int i = 0; i < 3; ++i) {
      int out = 10 * c.rank() + i, in = -1;
      const MessagePtr sent = c.mailbox().send(right, i, &out, sizeof out, {});
      expect_ok(c.mailbox().recv(left, i, &in, sizeof in, {}));
      expect_ok(sent);
      EXPECT_EQ(in, 10 * left + i);
    }
  });
  // Both ends are in this process. A door may still hold a connection that the other end gave up.
  const Deadline patience = soon();
  while (connected_sockets() - before != 2 * kSize && !patience.expired()) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(connected_sockets() - before, 2 * kSize);
}

// A callback answers each message that comes, a hundred times.
TEST(Mailbox, CallbacksMayPostMessages) {
  World world(2, config_of("auto"));
  ASSERT_TRUE(world.ok());
  world.run([](Communicator& c) {
    int value = 0, answered = 0;
    std::atomic<bool> over{false};
    std::function<void(const Status&)> answer = [&](const Status& status) {
      if (over) return;
      EXPECT_TRUE(status.ok()) << status.message();
      answered = value + 1;
      static_cast<void>(c.mailbox().send(1 - c.rank(), 0, &answered, sizeof answered, {}));
      if (answered >= 100) {
        over = true;
      } else {
        static_cast<void>(c.mailbox().recv(1 - c.rank(), 0, &value, sizeof value, answer));
      }
    };
    static_cast<void>(c.mailbox().recv(1 - c.rank(), 0, &value, sizeof value, answer));
    const int first = 0;
    if (c.rank() == 0) static_cast<void>(c.mailbox().send(1, 0, &first, sizeof first, {}));
    const Deadline patience = soon();
    while (!over && !patience.expired()) std::this_thread::sleep_for(milliseconds(1));
    EXPECT_TRUE(over);
    ASSERT_TRUE(c.operations().run({}).ok());  // both have answered
  });
}

// Several threads of each rank exchange messages while collectives run.
TEST(Mailbox, ThreadsAndCollectivesDoNotMeet) {
  World world(2, config_of("auto"));
  ASSERT_TRUE(world.ok());
  world.run([](Communicator& c) {
    std::vector<std::thread> threads;
    for (int tag = 0; tag < 3; ++tag) {
      threads.emplace_back([&c, tag] {
        for (int i = 0; i < 300; ++i) {
          std::vector<int> out(static_cast<std::size_t>(1 + i * 37 % 9000), tag * 1000 + i);
          std::vector<int> in(out.size());
          const std::size_t bytes = out.size() * sizeof(int);
          const MessagePtr sent = c.mailbox().send(1 - c.rank(), tag, out.data(), bytes, {});
          const MessagePtr got = c.mailbox().recv(1 - c.rank(), tag, in.data(), bytes, {});
          expect_ok(sent);
          expect_ok(got);
          ASSERT_EQ(in, out);
        }
      });
    }
    for (int i = 0; i < 500; ++i) {
      std::int64_t one = 1;
      ASSERT_TRUE(c.operations()
                      .run({Op::kAllReduce, &one, &one, 1, DataType::kInt64, ReduceOp::kSum, 0, 0})
                      .ok());
      ASSERT_EQ(one, 2);
    }
    for (auto& each : threads) each.join();
  });
}

// ---- ends and limits of operations ----

// A simulated rank 1: announces messages without end, or takes all messages and never answers.
class Rank1 : public transport::Mesh {
 public:
  explicit Rank1(bool floods) : floods_(floods) {}
  std::string_view name() const override { return "test"; }
  int rank() const override { return 0; }
  int size() const override { return 2; }
  Sleeper& sleeper() override { return sleeper_; }
  void send(transport::Request& request, int peer, std::uint32_t lane,
            std::span<const std::byte> bytes) override {
    request.begin(peer, lane, nullptr, bytes.size());
    request.finish({});
  }
  void recv(transport::Request& request, int peer, std::uint32_t lane,
            std::span<std::byte> bytes) override {
    request.begin(peer, lane, bytes.data(), bytes.size());
    next_ = &request;
  }
  bool progress() override {
    if (!floods_ || next_ == nullptr) return false;
    transport::Request& header = *std::exchange(next_, nullptr);
    std::memset(header.data_, 0, header.size_);
    header.data_[0] = std::byte{2};  // a message waits at the sender
    header.data_[8] = std::byte{9};  // number of bytes
    header.finish({});
    return true;
  }
  void abort(Status why) override {
    if (next_ != nullptr) std::exchange(next_, nullptr)->finish(why);
  }

 private:
  const bool floods_;
  transport::NapSleeper sleeper_;
  transport::Request* next_ = nullptr;
};

// If a peer sends too many messages, an error names the peer; this rank's own surplus is refused
// before it is sent.
TEST(Mailbox, MessagesThatWaitForTheirReceivesAreBounded) {
  for (const bool floods : {true, false}) {
    const auto box = std::make_shared<core::Mailbox>(
        0, 2, "flood",
        [=](const AbortFlag&) -> Result<core::OpenedMesh> {
          return core::OpenedMesh{std::make_unique<Rank1>(floods), {}};
        },
        WaitPolicy{}, make_logger("off", "rank 0"));
    Bytes bytes(20'000);
    if (floods) {
      const MessagePtr waits = box->recv(1, 7, bytes.data(), bytes.size(), {});
      box->start();
      ASSERT_TRUE(waits->wait(soon()).ok());
      EXPECT_EQ(waits->status().culprit(), 1);
      EXPECT_EQ(waits->status().message(),
                "flood: rank 1 sent more messages than may wait for their receives");
    } else {
      MessagePtr last;
      for (int i = 0; i <= 1 << 18; ++i) last = box->send(1, 0, bytes.data(), bytes.size(), {});
      ASSERT_TRUE(last->wait(soon()).ok());
      EXPECT_EQ(last->status().code(), Code::kUnavail);
      EXPECT_EQ(last->status().message(),
                "flood: 262144 messages to rank 1 wait for their receives already");
    }
    box->end(Status(Code::kUnavail, "over"));
    box->stop();
  }
}

// Another rank's request to open connections may come while this rank leaves.
TEST(Mailbox, NeverOpensOnceItsRankLeaves) {
  std::atomic<bool> opened{false};
  const auto box = std::make_shared<core::Mailbox>(
      0, 2, "left",
      [&](const AbortFlag&) -> Result<core::OpenedMesh> {
        opened = true;
        return Status(Code::kUnavail, "too late");
      },
      WaitPolicy{}, make_logger("off", "rank 0"));
  EXPECT_EQ(box->end_opening(std::chrono::seconds(1)), core::Opener::State::kClosed);
  box->start();
  box->stop();
  EXPECT_FALSE(opened);
}

// A simulated rank 1: sending to it, or looking for its bytes, runs out of memory.
class Unaffordable final : public Rank1 {
 public:
  Unaffordable(const std::atomic<bool>& sends, std::atomic<bool>& looks)
      : Rank1(false), sends_(sends), looks_(looks) {}
  void send(transport::Request& request, int peer, std::uint32_t lane,
            std::span<const std::byte> bytes) override {
    if (sends_) throw std::bad_alloc();
    Rank1::send(request, peer, lane, bytes);
  }
  bool progress() override {
    if (looks_) throw std::bad_alloc();
    return Rank1::progress();
  }
  void abort(Status why) override {
    looks_ = false;
    Rank1::abort(std::move(why));
  }

 private:
  const std::atomic<bool>& sends_;
  std::atomic<bool>& looks_;
};

// Memory runs out before the mesh is open, when a message is sent, or in between.
TEST(Mailbox, WithoutMemoryAllMessagesFailAndTheOtherRanksAreTold) {
  for (const std::string where : {"early", "send", "look"}) {
    SCOPED_TRACE(where);
    std::atomic<bool> sends = where == "early", looks = false;
    std::promise<void> opens;
    std::promise<Status> told;
    const auto box = std::make_shared<core::Mailbox>(
        0, 2, "poor",
        [&](const AbortFlag&) -> Result<core::OpenedMesh> {
          opens.get_future().wait();
          return core::OpenedMesh{std::make_unique<Unaffordable>(sends, looks), {}};
        },
        WaitPolicy{}, make_logger("off", "rank 0"),
        [&](const Status& why) { told.set_value(why); });
    Bytes bytes(20'000);
    std::atomic<int> done = 0;
    const auto count = [&](const Status&) { ++done; };
    std::vector<MessagePtr> waiting;
    for (int i = 0; i < 3; ++i) {
      waiting.push_back(box->send(1, i, bytes.data(), bytes.size(), count));
      waiting.push_back(box->recv(1, i, bytes.data(), bytes.size(), count));
    }
    opens.set_value();
    if (where != "early") {
      ASSERT_TRUE(box->send(1, 9, bytes.data(), 8, {})->wait(soon()).ok());
      (where == "send" ? sends : looks) = true;
    }
    if (where == "send") {  // a send that is refused has no callback
      EXPECT_THROW(box->send(1, 9, bytes.data(), 8, count), std::bad_alloc);
    }
    for (const MessagePtr& each : waiting) {
      ASSERT_TRUE(each->wait(soon()).ok());
      EXPECT_EQ(each->status().message().find("poor: rank 0: out of memory"), 0u);
    }
    auto report = told.get_future();
    ASSERT_EQ(report.wait_for(seconds(30)), std::future_status::ready);
    const Status why = report.get();
    EXPECT_EQ(why.code(), Code::kOom);
    EXPECT_EQ(why.culprit(), 0);
    box->stop();
    EXPECT_EQ(done, 6);
  }
}

TEST(Abort, EndsAnOperationThatWaits) {
  for (const char* transport : {"auto", "tcp"}) {
    World world(3, config_of(transport));
    ASSERT_TRUE(world.ok());
    world.run([](Communicator& c) {
      if (c.rank() == 2) {  // does not call, and then aborts for all
        std::this_thread::sleep_for(milliseconds(100));
        c.abort("the user said so");
      }
      std::vector<float> data(1000);
      const Status status = c.rank() == 2
                                ? c.operations().run({})
                                : c.operations().run({Op::kAllReduce, data.data(), data.data(),
                                                      1000, DataType::kFp32, ReduceOp::kSum, 0, 0});
      EXPECT_EQ(status.code(), Code::kUnavail) << status.message();
      EXPECT_NE(status.message().find("rank 2 aborted"), std::string::npos) << status.message();
      EXPECT_NE(status.message().find("the user said so"), std::string::npos);
    });
  }
}

TEST(Timeout, CanBeSetForTheOperationsThatFollow) {
  for (const char* transport : {"auto", "tcp"}) {
    World world(2, config_of(transport));
    ASSERT_TRUE(world.ok());
    std::atomic<bool> over{false};
    world.run([&](Communicator& c) {
      EXPECT_EQ(c.settings().timeout.load(), seconds(30));
      ASSERT_TRUE(c.operations().run({}).ok());
      c.settings().timeout = milliseconds(300);
      if (c.rank() == 1) {  // never comes
        while (!over) std::this_thread::sleep_for(milliseconds(1));
        return;
      }
      const auto begun = Deadline::Clock::now();
      EXPECT_EQ(c.operations().run({}).code(), Code::kTimeout);
      EXPECT_LT(Deadline::Clock::now() - begun, seconds(30)) << "the limit before";
      EXPECT_GE(Deadline::Clock::now() - begun, milliseconds(300));
      over = true;
    });
  }
}

}  // namespace
}  // namespace hccl::testing
