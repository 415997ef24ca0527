// A control line with somebody on the way: a proxy that listens, changes a byte, repeats a
// recording.
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include "hccl/base/random.h"
#include "hccl/join/control_line.h"
#include "hccl/join/coordinator.h"
#include "hccl/join/host.h"
#include "tests/support/config.h"

namespace hccl::join {
namespace {

using std::chrono::seconds;

constexpr char kPain[] = "it hurts";

Config config(seconds patience = seconds(30)) { return testing::quiet_config("auto", patience); }

RootInfo new_info() {
  RootInfo info;
  EXPECT_TRUE(random_bytes(info.secret.data(), info.secret.size()).ok());
  EXPECT_TRUE(random_bytes(info.id.data(), info.id.size()).ok());
  info.address = "127.0.0.1";
  return info;
}

std::unique_ptr<Coordinator> start(RootInfo& info, const Config& with = config()) {
  auto started = Coordinator::start(info, with, make_logger("off", "coordinator"));
  EXPECT_TRUE(started.ok()) << started.status().message();
  return std::move(*started);
}

Deadline soon() { return Deadline::after(seconds(30)); }

// Stands between ranks and coordinator. The first connection's records pass through `tamper`,
// numbered by direction; later connections are left alone.
class Proxy {
 public:
  using Tamper = std::function<void(bool up, int number, std::string& record)>;

  Proxy(const RootInfo& root, Tamper tamper)
      : root_(root), tamper_(std::move(tamper)), sleeper_(EpollSleeper::create().value()) {
    auto listener = listen_tcp("127.0.0.1", 0);
    EXPECT_TRUE(listener.ok());
    port_ = listener->port;
    listener_ = std::move(listener->fd);
    thread_ = std::thread([this] { run(); });
  }
  ~Proxy() { stop(); }
  void stop() {
    stopping_ = true;
    sleeper_->ring();
    if (thread_.joinable()) thread_.join();
    pipes_.clear();
  }
  RootInfo info() const {
    RootInfo here = root_;
    here.port = port_;
    return here;
  }
  /// What passed, once stopped; upwards only, or both ways.
  const std::string& sent() const { return sent_; }
  const std::string& seen() const { return seen_; }

 private:
  struct Pipe {
    Fd ends[2];  // the rank's, the coordinator's
    std::string cut[2];
    bool first = false;
    bool open = true;
  };

  void run() {
    while (!stopping_) {
      std::vector<pollfd> entries{{listener_.get(), POLLIN, 0}, {sleeper_->wake_fd(), POLLIN, 0}};
      for (const auto& pipe : pipes_) {
        for (const Fd& end : pipe->ends) entries.push_back({end.get(), POLLIN, 0});
      }
      ::poll(entries.data(), entries.size(), -1);
      for (auto& pipe : pipes_) {
        for (const int from : {0, 1}) pass(*pipe, from);
      }
      std::erase_if(pipes_, [](const auto& pipe) { return !pipe->open; });
      accept();
    }
  }
  void accept() {
    auto fd = accept_one(listener_.get());
    if (!fd.ok() || !fd->valid()) return;
    auto up = connect_tcp(root_.address, root_.port, "", soon());
    if (!up.ok()) return;
    auto pipe = std::make_unique<Pipe>();
    pipe->ends[0] = std::move(*fd);
    pipe->ends[1] = std::move(*up);
    pipe->first = accepted_++ == 0;
    pipes_.push_back(std::move(pipe));
  }
  void pass(Pipe& pipe, int from) {
    char bytes[16384];
    while (pipe.open) {
      const ssize_t got = ::recv(pipe.ends[from].get(), bytes, sizeof bytes, 0);
      if (got < 0 && errno == EAGAIN) break;
      if (got <= 0) {
        pipe.open = false;
        break;
      }
      seen_.append(bytes, static_cast<std::size_t>(got));
      if (from == 0) sent_.append(bytes, static_cast<std::size_t>(got));
      if (!pipe.first) {
        put(pipe, from, {bytes, static_cast<std::size_t>(got)});
        continue;
      }
      pipe.cut[from].append(bytes, static_cast<std::size_t>(got));
      pass_records(pipe, from);
    }
  }
  void pass_records(Pipe& pipe, int from) {
    std::string& in = pipe.cut[from];
    while (in.size() >= 5) {
      const std::size_t length = 5 +
                                 static_cast<std::size_t>(static_cast<unsigned char>(in[3])) * 256 +
                                 static_cast<unsigned char>(in[4]);
      if (in.size() < length) return;
      std::string record = in.substr(0, length);
      in.erase(0, length);
      tamper_(from == 0, records_[from == 0 ? 1 : 0]++, record);
      put(pipe, from, record);
    }
  }
  static void put(Pipe& pipe, int from, std::string_view bytes) {
    if (!send_all(pipe.ends[1 - from].get(), bytes, soon()).ok()) pipe.open = false;
  }

  RootInfo root_;
  Tamper tamper_;
  std::unique_ptr<EpollSleeper> sleeper_;
  Fd listener_;
  std::uint16_t port_ = 0;
  int accepted_ = 0;
  std::array<int, 2> records_{};
  std::string sent_;
  std::string seen_;
  std::vector<std::unique_ptr<Pipe>> pipes_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

// What a rank hears.
class Ear final : public FailureListener {
 public:
  void on_failure(const Uuid&, const Status& why) override {
    const std::lock_guard lock(mutex_);
    heard_.push_back(why);
    if (why.code() == Code::kRemote) broken.raise(why);
  }
  void on_summons(const Uuid&) override { called = true; }
  std::vector<Status> heard() {
    const std::lock_guard lock(mutex_);
    return heard_;
  }
  AbortFlag broken;
  std::atomic<bool> called{false};

 private:
  std::mutex mutex_;
  std::vector<Status> heard_;
};

bool has(const Status& status, std::string_view words) {
  return status.message().find(words) != std::string::npos;
}
bool of_a_broken_line(const Status& status) {
  return status.code() == Code::kRemote &&
         (has(status, "corrupted on the way") || has(status, "cut off"));
}
bool says_so(const std::vector<Status>& heard) {
  return std::any_of(heard.begin(), heard.end(), of_a_broken_line);
}

constexpr Uuid kScope{9};
constexpr Uuid kKey{8};

struct Rank {
  Status joined;
  Result<std::vector<std::string>> parts{Status(Code::kInternal, "no exchange")};
  std::vector<Status> heard;
  bool other_left = false;
};

// Two ranks that say everything that a control line can say; rank 1 through the proxy.
class Story {
 public:
  explicit Story(const Proxy::Tamper& tamper, seconds patience = seconds(30))
      : config_(config(patience)), coordinator_(start(info_, config_)), proxy_(info_, tamper) {
    std::thread other([this] { join_and_talk(0, info_); });
    join_and_talk(1, proxy_.info());
    other.join();
    proxy_.stop();
  }
  Rank ranks[2];
  const Proxy& proxy() const { return proxy_; }

 private:
  void join_and_talk(int rank, const RootInfo& info) {
    Rank& me = ranks[rank];
    auto line = ControlLine::join(info, 2, rank, config_, make_logger("off", "rank"));
    me.joined = line.status();
    if (!line.ok()) return;
    Ear ear;
    (*line)->add(&ear);
    me.parts = (*line)->exchange(kKey, 2, static_cast<std::uint32_t>(rank),
                                 "part " + std::to_string(rank), soon(), ear.broken);
    const Deadline deadline = soon();
    const auto wait = [&](const std::function<bool()>& come) {
      while (!come() && !ear.broken.raised() && !deadline.expired()) {
        nap(std::chrono::milliseconds(1), deadline);
      }
    };
    (*line)->report(Uuid{static_cast<std::uint8_t>(rank + 1)}, Status(Code::kInternal, kPain));
    (*line)->summon(kScope);
    wait([&] { return ear.called.load(); });
    if (rank == 0) {
      wait([&] { return (*line)->has_left(1); });
    } else {
      (*line)->stalled(kScope, 1, "an allreduce", {});
      (*line)->refused(kScope, 1, "a null pointer");
      (*line)->ended("a broadcast");
      (*line)->leave(seconds(0));
    }
    me.heard = ear.heard();
    me.other_left = (*line)->has_left(1 - rank);
    (*line)->remove(&ear);
    if (rank == 0) (*line)->leave(seconds(0));
  }

  Config config_;
  RootInfo info_ = new_info();
  std::unique_ptr<Coordinator> coordinator_;
  Proxy proxy_;
};

void expect_nothing_strange(const Rank& rank) {
  if (rank.parts.ok()) {
    EXPECT_EQ(*rank.parts, (std::vector<std::string>{"part 0", "part 1"}));
  } else if (rank.joined.ok()) {
    EXPECT_TRUE(of_a_broken_line(rank.parts.status())) << rank.parts.status().message();
  }
  for (const Status& status : rank.heard) {
    const bool own = status.code() == Code::kInternal && status.message() == kPain;
    EXPECT_TRUE(own || of_a_broken_line(status)) << status.message();
  }
}

TEST(Line, NobodyOnTheWayUnderstandsIt) {
  Story story([](bool, int, std::string&) {});
  for (const Rank& rank : story.ranks) {
    ASSERT_TRUE(rank.joined.ok()) << rank.joined.message();
    expect_nothing_strange(rank);
    ASSERT_TRUE(rank.parts.ok());
  }
  const auto& heard = story.ranks[0].heard;
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_EQ(heard[0].message(), kPain);
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  const std::string& seen = story.proxy().seen();
  EXPECT_GT(seen.size(), 1000U);
  for (const std::string& secret :
       {std::string(name), std::string("127.0.0.1"), host_identity(*boot_id()),
        config().agreement(), std::string("transport="), std::string("HCCL"), std::string("part "),
        std::string(kPain), std::string("allreduce"), std::string("broadcast"),
        std::string("null pointer")}) {
    // Two or three letters, as a short host name has, occur by chance among enciphered bytes.
    if (secret.size() < 4) continue;
    EXPECT_EQ(seen.find(secret), std::string::npos) << secret;
  }
}

// The records of a handshake: the client's two, the server's three.
constexpr int kHandshakeRecords[2] = {3, 2};

TEST(Line, FlippedByteInAnyRecordIsAnErrorOnAllRanks) {
  for (const bool up : {false, true}) {
    // Until a story has no such record.
    for (int flipped = 0;; ++flipped) {
      SCOPED_TRACE(std::string(up ? "up" : "down") + ", record " + std::to_string(flipped));
      // Up to the hello, or the table: rank 1 does not come in.
      const bool early = flipped <= kHandshakeRecords[up ? 1 : 0];
      bool done = false;
      Story story(
          [&](bool way, int number, std::string& record) {
            if (way != up || number != flipped) return;
            record[5 + (record.size() - 5) / 2] ^= 4;
            done = true;
          },
          // Rank 0 waits for a rank that was turned away.
          early ? seconds(1) : seconds(30));
      for (const Rank& rank : story.ranks) expect_nothing_strange(rank);
      if (!done) {
        EXPECT_GE(flipped, up ? 10 : 7) << "a handshake, and each kind of frame";
        break;
      }
      if (early) {
        EXPECT_FALSE(story.ranks[1].joined.ok() && story.ranks[1].parts.ok() &&
                     story.ranks[0].heard.empty());
        continue;
      }
      ASSERT_TRUE(story.ranks[1].joined.ok());
      if (story.ranks[0].joined.ok()) {
        // Rank 1 may have left in good order before the changed record came to it.
        EXPECT_TRUE(says_so(story.ranks[0].heard) || story.ranks[0].other_left)
            << "rank 0 knows nothing";
        for (const Status& status : story.ranks[0].heard) {
          EXPECT_EQ(status.culprit(), of_a_broken_line(status) ? 1 : Status::kNobody);
        }
      }
    }
  }
}

TEST(Line, RecordedJoinLetsNobodyIn) {
  RootInfo info = new_info();
  const auto coordinator = start(info);
  const auto join = [](const RootInfo& with, int rank) {
    return ControlLine::join(with, 2, rank, config(), make_logger("off", "rank"));
  };
  std::promise<void> hello_passes;
  Proxy proxy(info, [&](bool up, int number, std::string&) {
    if (up && number == kHandshakeRecords[1]) hello_passes.set_value();
  });
  std::thread cut([&] { EXPECT_FALSE(join(proxy.info(), 1).ok()) << "there is no rank 0 yet"; });
  hello_passes.get_future().wait();
  proxy.stop();
  cut.join();
  auto replay = connect_tcp(info.address, info.port, "", soon());
  ASSERT_TRUE(replay.ok());
  ASSERT_GT(proxy.sent().size(), 400U);
  EXPECT_TRUE(send_all(replay->get(), proxy.sent(), soon()).ok());
  // The answer to the first message of a holder of the secret, and no more.
  std::string answer;
  char byte = 0;
  while (recv_all(replay->get(), {&byte, 1}, soon()).ok()) answer += byte;
  EXPECT_LT(answer.size(), 400U) << "more than the answer of a handshake";
  // Nobody has taken the place of rank 1.
  Status other;
  std::thread zero([&] { other = join(info, 0).status(); });
  EXPECT_TRUE(join(info, 1).ok());
  zero.join();
  EXPECT_TRUE(other.ok()) << other.message();
}

}  // namespace
}  // namespace hccl::join
