// A control line through a proxy that listens, changes a byte, or repeats what it has recorded.
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
#include <set>
#include <thread>

#include "hccl/join/host.h"
#include "tests/support/blocking.h"
#include "tests/support/config.h"
#include "tests/support/control.h"

namespace hccl::join {
namespace {

using std::chrono::seconds;

constexpr char kPain[] = "it hurts";

Config config(seconds patience = seconds(30)) { return testing::quiet_config("auto", patience); }

Deadline soon() { return Deadline::after(seconds(30)); }

// A proxy between ranks and the root. The first connection's records pass through `tamper`,
// numbered by direction; later connections pass unchanged.
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
  /// The bytes that have passed, upwards only or both ways; valid once the proxy has stopped.
  const std::string& sent() const { return sent_; }
  const std::string& seen() const { return seen_; }

 private:
  struct Pipe {
    Fd ends[2];  // the rank's, the root's
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
    auto up = connect_tcp(root_.address, root_.port, soon());
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

// Stores the messages to a rank.
class Ear final : public FailureListener {
 public:
  void on_failure(const Uuid& scope, const Status& why) override {
    const std::lock_guard lock(mutex_);
    failures_.emplace_back(scope, why);
  }
  void on_summons(const Uuid& scope) override {
    const std::lock_guard lock(mutex_);
    summons_.insert(scope);
  }
  std::vector<std::pair<Uuid, Status>> failures() {
    const std::lock_guard lock(mutex_);
    return failures_;
  }
  bool heard_failure(const Uuid& scope) {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(failures_, [&](const auto& each) { return each.first == scope; });
  }
  bool summoned(const Uuid& scope) {
    const std::lock_guard lock(mutex_);
    return summons_.count(scope) != 0;
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<Uuid, Status>> failures_;
  std::set<Uuid> summons_;
};

Uuid scope_of(int rank) { return {static_cast<std::uint8_t>(rank + 1)}; }
constexpr Uuid kWaits{9};
constexpr Uuid kKey{8};

struct Rank {
  Status joined;
  Result<World::Blobs> parts{Status(Code::kInternal, "no exchange")};
  std::vector<std::pair<Uuid, Status>> failures;
  bool heard_all = false;
};

// Two ranks exchange every message that a control line can carry; rank 1 does so through the proxy.
class Story {
 public:
  explicit Story(const Proxy::Tamper& tamper, seconds patience = seconds(30))
      : config_(config(patience)),
        root_(testing::start_root(control_, info_, config_)),
        proxy_(info_, tamper) {
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
    const auto world = World::join(rank == 0 ? root_ : testing::new_node(control_, info), 2, rank,
                                   config_, make_logger("off", "rank"));
    me.joined = world.status();
    if (!world.ok()) return;
    Ear ear;
    (*world)->add(&ear);
    const AbortFlag never;
    me.parts = (*world)->exchange(kKey, "part " + std::to_string(rank), soon(), never);
    (*world)->report(scope_of(rank), Status(Code::kInternal, kPain));
    (*world)->summon(scope_of(rank));
    const auto wait = [](const std::function<bool()>& come) {
      const Deadline deadline = soon();
      while (!come() && !deadline.expired()) nap(std::chrono::milliseconds(1), deadline);
      return come();
    };
    const Uuid others = scope_of(1 - rank);
    me.heard_all = wait([&] {
      return ear.heard_failure(others) && ear.heard_failure(scope_of(rank)) && ear.summoned(others);
    });
    if (rank == 0) {
      me.heard_all = wait([&] { return (*world)->has_left(1); }) && me.heard_all;
    } else {
      (*world)->stalled(kWaits, 1, "an allreduce", {});
      (*world)->refused(kWaits, 1, "a null pointer");
      (*world)->ended("a broadcast");
      (*world)->leave();
    }
    me.failures = ear.failures();
    (*world)->remove(&ear);
    if (rank == 0) (*world)->leave();
  }

  Config config_;
  RootInfo info_ = testing::new_root_info();
  std::shared_ptr<Control> control_ = testing::make_control();
  std::shared_ptr<Node> root_;
  Proxy proxy_;
};

// Expects that each rank got all messages of the other rank, and each failure once.
void expect_nothing_strange(const Story& story) {
  for (const Rank& rank : story.ranks) {
    ASSERT_TRUE(rank.joined.ok()) << rank.joined.message();
    ASSERT_TRUE(rank.parts.ok()) << rank.parts.status().message();
    EXPECT_EQ(*rank.parts, (World::Blobs{{0, "part 0"}, {1, "part 1"}}));
    EXPECT_TRUE(rank.heard_all);
    std::multiset<Uuid> scopes;
    for (const auto& [scope, why] : rank.failures) {
      scopes.insert(scope);
      EXPECT_EQ(why.message(), kPain);
    }
    EXPECT_EQ(scopes, (std::multiset<Uuid>{scope_of(0), scope_of(1)}));
  }
}

TEST(Line, NobodyOnTheWayUnderstandsIt) {
  Story story([](bool, int, std::string&) {});
  expect_nothing_strange(story);
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  const std::string& seen = story.proxy().seen();
  EXPECT_GT(seen.size(), 1000U);
  for (const std::string& secret :
       {std::string(name), std::string("127.0.0.1"), host_identity(*boot_id()),
        config().agreement(), std::string("transport="), std::string("HCCL"), std::string("part "),
        std::string(kPain), std::string("allreduce"), std::string("broadcast"),
        std::string("null pointer")}) {
    // Very short words may occur by chance among encrypted bytes.
    if (secret.size() < 4) continue;
    EXPECT_EQ(seen.find(secret), std::string::npos) << secret;
  }
}

// The numbers of records in a handshake: three by the server, two by the client.
constexpr int kHandshakeRecords[2] = {3, 2};

// The rank or the root closes the line, and the rank dials again.
TEST(Line, FlippedByteInAnyRecordChangesNothing) {
  for (const bool up : {false, true}) {
    // One run for each record number: flips a byte of that record. Ends at the first number that no
    // record of the run has.
    for (int flipped = 0;; ++flipped) {
      SCOPED_TRACE(std::string(up ? "up" : "down") + ", record " + std::to_string(flipped));
      // A rank that gets no proof from the root does not join.
      const bool early = flipped < kHandshakeRecords[up ? 1 : 0];
      std::atomic<bool> done = false;
      const Story story(
          [&](bool way, int number, std::string& record) {
            if (way != up || number != flipped) return;
            record[5 + (record.size() - 5) / 2] ^= 4;
            done = true;
          },
          // Rank 0 waits for a rank that does not join.
          early ? seconds(2) : seconds(30));
      if (early && !story.ranks[1].joined.ok()) {
        EXPECT_EQ(story.ranks[0].joined.code(), Code::kTimeout);
        continue;
      }
      expect_nothing_strange(story);
      if (!done) {
        EXPECT_GE(flipped, 7) << "a handshake, and frames";
        break;
      }
    }
  }
}

TEST(Line, RecordedJoinLetsNobodyIn) {
  RootInfo info = testing::new_root_info();
  const auto control = testing::make_control();
  const auto root = testing::start_root(control, info, config());
  const auto join = [&](const RootInfo& with, int rank, seconds patience = seconds(30)) {
    return World::join(rank == 0 ? root : testing::new_node(control, with), 2, rank,
                       config(patience), make_logger("off", "rank"));
  };
  std::promise<void> question_passes;
  Proxy proxy(info, [&](bool up, int number, std::string&) {
    if (up && number == kHandshakeRecords[1]) question_passes.set_value();
  });
  std::thread cut(
      [&] { EXPECT_FALSE(join(proxy.info(), 1, seconds(1)).ok()) << "there is no rank 0 yet"; });
  question_passes.get_future().wait();
  proxy.stop();
  cut.join();
  auto replay = connect_tcp(info.address, info.port, soon());
  ASSERT_TRUE(replay.ok());
  ASSERT_GT(proxy.sent().size(), 400U);
  EXPECT_TRUE(send_all(replay->get(), proxy.sent(), soon()).ok());
  // The sender of the recorded bytes gets the answer to the first message, and no more.
  std::string answer;
  char byte = 0;
  while (recv_all(replay->get(), {&byte, 1}, soon()).ok()) answer += byte;
  EXPECT_LT(answer.size(), 400U) << "more than the answer of a handshake";
  // The recorded bytes have not taken rank 1's place.
  Status other;
  std::thread zero([&] { other = join(info, 0).status(); });
  EXPECT_TRUE(join(info, 1).ok());
  zero.join();
  EXPECT_TRUE(other.ok()) << other.message();
}

}  // namespace
}  // namespace hccl::join
