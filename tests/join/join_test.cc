// Joining: many ranks come together quickly; a rank that is missing or different is named;
// strangers change nothing; and leaving is quick and leaves nothing.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <iostream>
#include <mutex>
#include <optional>
#include <regex>
#include <set>
#include <thread>

#include "hccl/base/tls.h"
#include "hccl/control/seek.h"
#include "hccl/control/wire.h"
#include "hccl/core/opening.h"
#include "tests/support/config.h"
#include "tests/support/control.h"
#include "tests/support/load.h"
#include "tests/support/processes.h"
#include "tests/support/world.h"

namespace hccl::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

// A rank that the machine holds up for so long is absent.
constexpr seconds kShort{3};
// Far below the minute that ranks wait for one another. What the machine is late comes on top.
constexpr seconds kSoon{10};

Config config_of(seconds patience) { return quiet_config("auto", patience); }

bool has(const Status& status, const std::string& words) {
  return status.message().find(words) != std::string::npos;
}

Call sum(std::vector<float>& data) {
  return {Op::kAllReduce, data.data(), data.data(), data.size()};
}

// A connection by a holder of the secret, who may send what he likes.
class Secured {
 public:
  Secured(Fd fd, const join::RootInfo& info) : fd_(std::move(fd)) {
    auto context = TlsContext::create();
    auto stream = TlsStream::create(context.value(), TlsStream::Side::kClient, fd_.get(),
                                    tls_key(info.secret, info.id, "control"));
    stream_ = std::make_unique<TlsStream>(std::move(*stream));
    EXPECT_TRUE(handshake(*stream_, Deadline::after(seconds(30))).ok());
  }
  Status send(std::string_view bytes) {
    return send_all(*stream_, bytes, Deadline::after(seconds(30)));
  }
  Status send_frame(std::string_view bytes) { return send(ByteWriter().put_text(bytes).take()); }
  Status receive(std::span<char> out) {
    return recv_all(*stream_, out, Deadline::after(seconds(30)));
  }

 private:
  Fd fd_;
  std::unique_ptr<TlsStream> stream_;
};

// Keeps the failures of which a rank hears.
class Ear final : public join::FailureListener {
 public:
  void on_failure(const Uuid&, const Status& why) override {
    const std::lock_guard lock(mutex_);
    heard_.push_back(why);
  }
  void on_summons(const Uuid&) override {}
  /// The first failure whose text has these words.
  std::optional<Status> heard(const std::string& words = "") const {
    const std::lock_guard lock(mutex_);
    const auto at =
        std::ranges::find_if(heard_, [&](const Status& why) { return has(why, words); });
    return at == heard_.end() ? std::nullopt : std::optional(*at);
  }
  /// Waits for it.
  Status hears(const std::string& words = "") const {
    EXPECT_TRUE(eventually([&] { return heard(words).has_value(); })) << words;
    return heard(words).value_or(Status());
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Status> heard_;
};

// A root, and ranks that come to it on threads of their own. The root's node becomes rank 0's, as
// in a job whose rank 0 has made the root info.
class Meeting {
 public:
  explicit Meeting(seconds patience = seconds(60)) : Meeting(config_of(patience)) {}
  explicit Meeting(const Config& config) : config_(config) {
    root_ = start_root(control_, info, config_);
  }
  ~Meeting() {
    for (auto& thread : threads_) thread.join();
  }

  /// Starts to join; done() has the result.
  void come(int rank, int size) { come(rank, size, config_, info); }
  void come(int rank, int size, const Config& config, const join::RootInfo& with) {
    come(rank, size, config, with, control_, rank == 0 ? root_ : nullptr);
  }
  /// As a rank of another process than the root's.
  void come_apart(int rank, int size, const std::shared_ptr<join::Control>& control) {
    come(rank, size, config_, info, control, {});
  }
  struct Came {
    Status status;
    nanoseconds took{0};
    std::shared_ptr<join::World> control;
  };
  /// Waits for all; in the order of come().
  const std::vector<std::unique_ptr<Came>>& done() {
    for (auto& thread : threads_) thread.join();
    threads_.clear();
    return results_;
  }

  /// Waits until so many of them have ended.
  void await_ended(int ranks) const {
    EXPECT_TRUE(eventually([&] { return ended_ >= ranks; }));
  }

  /// A connection to the root.
  Fd connect() const {
    auto fd = connect_tcp(info.address, info.port, "", Deadline::after(seconds(30)));
    EXPECT_TRUE(fd.ok()) << fd.status().message();
    return fd.ok() ? std::move(*fd) : Fd();
  }
  /// A connection by a holder of the secret.
  std::unique_ptr<Secured> connect_as_member() const {
    return std::make_unique<Secured>(connect(), info);
  }
  const Config& config() const { return config_; }
  const std::shared_ptr<join::Control>& control() { return control_; }
  void end_root() { root_.reset(); }

  join::RootInfo info = new_root_info();

 private:
  void come(int rank, int size, const Config& config, const join::RootInfo& with,
            const std::shared_ptr<join::Control>& control,
            const std::shared_ptr<join::Root>& here) {
    const std::size_t place = results_.size();
    results_.emplace_back(std::make_unique<Came>());
    threads_.emplace_back([=, this] {
      const auto begun = Deadline::Clock::now();
      auto world =
          join::World::join(control, with, size, rank, config, make_logger("off", "rank"), here);
      results_[place]->took = Deadline::Clock::now() - begun;
      results_[place]->status = world.status();
      if (world.ok()) results_[place]->control = *world;
      ++ended_;
    });
  }

  Config config_;
  std::shared_ptr<join::Control> control_ = make_control();
  std::shared_ptr<join::Root> root_;
  std::atomic<int> ended_{0};
  std::vector<std::unique_ptr<Came>> results_ = reserved();
  std::vector<std::thread> threads_;

  // The threads hold on to the places of the results.
  static std::vector<std::unique_ptr<Came>> reserved() {
    std::vector<std::unique_ptr<Came>> places;
    places.reserve(64);
    return places;
  }
};

// Kinds of frames, each of which is the first byte.
constexpr std::uint8_t kAsk = control::kFirstJoinKind, kRefused = kAsk + 5;

// A process asks for a seat in the tree.
std::string hello(std::uint32_t rank, std::uint32_t size, const std::string& agreement,
                  std::uint32_t version = control::kJoinVersion) {
  control::Roster own;
  own.hosts.push_back({"elsewhere", "", {"127.0.0.1"}});
  own.nodes.push_back({0, 0, 0, 1, 0, {rank}});
  ByteWriter out;
  out.put(kAsk).put(version).put(size).put_text(agreement);
  put(out, own);
  return out.take();
}

std::string next_answer(Secured& member) {
  std::uint32_t length = 0;
  EXPECT_TRUE(member.receive({reinterpret_cast<char*>(&length), sizeof length}).ok());
  EXPECT_LE(length, 4096U);
  std::string answer(std::min(length, 4096U), '\0');
  EXPECT_TRUE(member.receive(answer).ok());
  return answer;
}

/// Until the root has seen all that reached it before: it then closes the line of a wrong frame.
void settle(const Meeting& meeting) {
  const auto wrong = meeting.connect_as_member();
  EXPECT_TRUE(wrong->send_frame("wrong").ok());
  char end = 0;
  EXPECT_FALSE(wrong->receive(std::span(&end, 1)).ok());
}

void expect_all_in(Meeting& meeting, std::size_t ranks) {
  for (std::size_t i = 0; i < ranks; ++i) {
    EXPECT_TRUE(meeting.done()[i]->status.ok()) << meeting.done()[i]->status.message();
  }
}

TEST(Join, SixtyFourProcessesJoinAndSum) {
  constexpr int kSize = 64;
  constexpr seconds kPatience{300};  // few cores may have to run all of them
  Processes processes;
  Board& board = processes.board();
  const std::int64_t begun = now_ns();
  for (int r = 0; r < kSize; ++r) {
    processes.start([&, r] {
      Member member;
      const auto me = static_cast<std::size_t>(r);
      Status status = processes.enter(member, kSize, r, config_of(kPatience));
      if (status.ok()) {
        std::vector<float> data(100, 1.0F);
        status = member.world->run(sum(data));
        if (status.ok() && data != std::vector<float>(100, kSize)) {
          status = Status(Code::kInternal, "a wrong sum");
        }
      }
      board.first[me].set(status);
      Processes::leave(member);
      return 0;
    });
  }
  const auto all_known = [&] {
    return std::all_of(board.first.begin(), board.first.end(),
                       [](const Outcome& each) { return each.known.load(); });
  };
  EXPECT_TRUE(eventually(all_known, kPatience));
  std::int64_t last = 0;
  for (const Outcome& each : board.first) {
    EXPECT_EQ(each.code, Code::kSuccess) << each.message();
    last = std::max(last, each.at_ns);
  }
  for (int r = 0; r < kSize; ++r) EXPECT_EQ(processes.wait(r), 0);
  std::cout << "  64 processes: " << static_cast<double>(last - begun) / 1e9
            << " s from the first fork to the last sum\n";
}

TEST(Join, MissingRanksAreNamedToAllPresentOnes) {
  const Load load;
  Meeting meeting(kShort);
  for (const int rank : {0, 2, 4}) meeting.come(rank, 5);
  nanoseconds longest{0};
  for (const auto& came : meeting.done()) {
    EXPECT_EQ(came->status.code(), Code::kTimeout);
    EXPECT_TRUE(has(came->status, "absent: 1, 3")) << came->status.message();
    EXPECT_LE(came->took, load.allows(kSoon));
    longest = std::max(longest, came->took);
  }
  EXPECT_GE(longest, kShort - milliseconds(100));  // that of the first, from which time counts
}

void die_while_joining(const Meeting& meeting, std::uint32_t rank, std::uint32_t size) {
  const auto victim = meeting.connect_as_member();
  EXPECT_TRUE(victim->send_frame(hello(rank, size, meeting.config().agreement())).ok());
  next_answer(*victim);
}

TEST(Join, RankThatDiesWhileOthersJoinIsNamed) {
  Meeting meeting(kShort);
  meeting.come(0, 4);
  meeting.come(1, 4);
  die_while_joining(meeting, 2, 4);
  for (const auto& came : meeting.done()) {
    EXPECT_EQ(came->status.code(), Code::kTimeout);
    EXPECT_TRUE(has(came->status, "absent: 2-3; died while joining: 2")) << came->status.message();
  }
}

TEST(Join, RankThatDiesWhileOthersJoinMayComeAgain) {
  Meeting meeting;
  meeting.come(0, 3);
  die_while_joining(meeting, 2, 3);
  settle(meeting);
  meeting.come(2, 3);
  meeting.come(1, 3);
  expect_all_in(meeting, 3);
}

TEST(Join, AnImpossibleRankIsRefusedAlone) {
  Meeting meeting;
  meeting.come(0, 2);
  meeting.come(2, 2);
  meeting.await_ended(1);
  meeting.come(1, 2);
  const auto& all = meeting.done();
  EXPECT_EQ(all[1]->status.code(), Code::kPara);
  EXPECT_TRUE(has(all[1]->status, "rank 2 of 2 ranks is impossible")) << all[1]->status.message();
  EXPECT_TRUE(all[0]->status.ok() && all[2]->status.ok()) << all[0]->status.message();
}

TEST(Join, TwoClaimsOfOneRankAreRefusedToAll) {
  Meeting meeting;
  meeting.come(0, 3);
  meeting.come(1, 3);
  meeting.come(1, 3);
  const std::string process = "pid " + std::to_string(::getpid());
  for (const auto& came : meeting.done()) {
    EXPECT_EQ(came->status.code(), Code::kPara);
    EXPECT_TRUE(has(came->status, "two processes claim rank 1") && has(came->status, process))
        << came->status.message();
  }
}

void expect_all_refused(Meeting& meeting, const Load& load, const std::string& one,
                        const std::string& other) {
  for (const auto& came : meeting.done()) {
    EXPECT_EQ(came->status.code(), Code::kPara);
    EXPECT_TRUE(has(came->status, one) && has(came->status, other)) << came->status.message();
    EXPECT_LE(came->took, load.allows(kSoon));
  }
}

TEST(Join, DifferentSizesAreNamedToAll) {
  const Load load;
  Meeting meeting;
  const auto first = meeting.connect_as_member();
  ASSERT_TRUE(first->send_frame(hello(0, 3, meeting.config().agreement())).ok());
  next_answer(*first);
  meeting.come(1, 3);
  meeting.come(2, 4);
  const std::string process = " (127.0.0.1 pid " + std::to_string(::getpid()) + ")";
  expect_all_refused(meeting, load, "rank 2" + process + " says 4 ranks",
                     "rank 0 (127.0.0.1 pid 0) says 3 ranks");
}

TEST(Join, DifferentConfigurationsAreNamedToAll) {
  const Load load;
  Meeting meeting;
  Config other = meeting.config();
  other.transport = "tcp";
  meeting.come(0, 3);
  meeting.come(1, 3, other, meeting.info);
  meeting.come(2, 3);
  expect_all_refused(meeting, load, "transport=auto", "transport=tcp");
}

TEST(Join, OtherProtectionOfDataIsNamedToAll) {
  const Load load;
  Meeting meeting;
  Config other = meeting.config();
  other.wire = Wire::kTls;
  meeting.come(0, 2, other, meeting.info);
  meeting.come(1, 2);
  expect_all_refused(meeting, load, "wire=auto", "wire=tls");
}

TEST(Join, OtherVersionIsNamedToAll) {
  Meeting meeting;
  const auto first = meeting.connect_as_member(), other = meeting.connect_as_member();
  ASSERT_TRUE(first->send_frame(hello(0, 2, meeting.config().agreement())).ok());
  next_answer(*first);
  ASSERT_TRUE(other->send_frame(hello(1, 2, "", control::kJoinVersion + 1)).ok());
  const std::string of_both = "rank 1 (127.0.0.1 pid 0) speaks protocol " +
                              std::to_string(control::kJoinVersion + 1) + ", the root " +
                              std::to_string(control::kJoinVersion);
  for (Secured* each : {first.get(), other.get()}) {
    const std::string answer = next_answer(*each);
    ByteReader in(answer);
    EXPECT_EQ(in.get<std::uint8_t>(), kRefused);
    EXPECT_EQ(in.get<std::uint8_t>(), 0) << "not alone";
    const Status why = control::get_status(in);
    EXPECT_EQ(why.code(), Code::kPara);
    EXPECT_TRUE(has(why, "EI0008") && has(why, of_both)) << why.message();
  }
}

// The descriptors of this process whose other end is the root's port.
std::vector<int> ends_at_root(const join::RootInfo& info) {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
        peer.sin_family == AF_INET && peer.sin_port == htons(info.port)) {
      found.push_back(fd);
    }
  }
  return found;
}

TEST(Join, ALineThatIsCutBeforeTheRankAsksIsDialedAgain) {
  for (const int how : {SHUT_WR, SHUT_RDWR}) {
    Meeting meeting;
    std::size_t cut = 0;
    const auto hang_up = [&](const std::shared_ptr<join::World>&) {
      for (const int fd : ends_at_root(meeting.info)) cut += ::shutdown(fd, how) == 0 ? 1 : 0;
      return Status();
    };
    meeting.come(0, 2);
    const auto joined = join::World::join(meeting.control(), meeting.info, 2, 1, meeting.config(),
                                          make_logger("off", "rank"), {}, hang_up);
    EXPECT_EQ(cut, 1u);
    EXPECT_TRUE(joined.ok()) << joined.status().message();
    expect_all_in(meeting, 1);
  }
}

TEST(Join, ARootThatEndsBeforeTheRankAsksIsNamed) {
  Meeting meeting(kShort);
  const auto end = [&](const std::shared_ptr<join::World>&) {
    meeting.end_root();
    return Status();
  };
  const auto joined = join::World::join(meeting.control(), meeting.info, 2, 1, meeting.config(),
                                        make_logger("off", "rank"), {}, end);
  EXPECT_EQ(joined.status().code(), Code::kRemote);
  EXPECT_TRUE(has(joined.status(), "the root of the job died")) << joined.status().message();
}

TEST(Join, WrongSecretAndWrongCommunicatorGetNothing) {
  Meeting meeting;
  join::RootInfo guessed = meeting.info;
  guessed.secret[5] ^= 1;
  join::RootInfo other = meeting.info;
  other.id[5] ^= 1;
  meeting.come(0, 2);
  meeting.come(1, 2, meeting.config(), guessed);
  meeting.come(1, 2, config_of(seconds(1)), other);
  meeting.await_ended(2);
  meeting.come(1, 2);
  const auto& all = meeting.done();
  EXPECT_TRUE(all[0]->status.ok()) << all[0]->status.message();
  EXPECT_EQ(all[1]->status.code(), Code::kTcpConnect);
  EXPECT_TRUE(has(all[1]->status, "another secret")) << all[1]->status.message();
  EXPECT_EQ(all[2]->status.code(), Code::kTimeout) << all[2]->status.message();
  EXPECT_TRUE(all[3]->status.ok()) << all[3]->status.message();
}

// A listener with the connections that it has not answered.
struct Silent {
  Listener listener;
  std::vector<Fd> connections = {};

  // The connections that are still open.
  std::size_t count() {
    for (auto more = accept_one(listener.fd.get()); more.ok() && more->valid();
         more = accept_one(listener.fd.get())) {
      connections.push_back(std::move(*more));
    }
    std::erase_if(connections, [](const Fd& each) {
      pollfd ended{each.get(), POLLRDHUP, 0};
      return ::poll(&ended, 1, 0) != 0;
    });
    return connections.size();
  }
};

// The root answers only when the ranks wait at all ports at once.
TEST(Join, SilentListenersAtOtherPortsHoldNobodyUp) {
  constexpr std::uint16_t kSilent = 6;
  for (int attempt = 0; attempt < 20; ++attempt) {
    Meeting meeting;
    join::RootInfo guessed = meeting.info;
    guessed.port = static_cast<std::uint16_t>(meeting.info.port - kSilent);
    guessed.ports = kSilent + 1;
    std::vector<Silent> silent;
    for (std::uint16_t port = guessed.port; port < meeting.info.port; ++port) {
      auto listener = listen_tcp("127.0.0.1", port);
      if (listener.ok()) silent.push_back({std::move(*listener)});
    }
    if (silent.size() < kSilent) continue;  // other programs have the ports
    meeting.control()->hold();
    for (int r = 0; r < 3; ++r) meeting.come(r, 3, meeting.config(), guessed);
    EXPECT_TRUE(eventually([&] {
      return std::all_of(silent.begin(), silent.end(),
                         [](Silent& each) { return each.count() == 2; });
    }));
    meeting.control()->release();
    return expect_all_in(meeting, 3);
  }
  FAIL() << "no row of free ports";
}

TEST(Join, GarbageAndWrongFramesEndTheirConnectionOnly) {
  Meeting meeting;
  const Deadline deadline = Deadline::after(seconds(30));
  const std::string good = hello(1, 3, meeting.config().agreement());
  const auto length = static_cast<std::uint32_t>(good.size());
  const auto frame = [](std::uint32_t size, std::string_view bytes) {
    return ByteWriter().put(size).take() + std::string(bytes);
  };
  meeting.come(0, 3);
  // Strangers that do not prove themselves.
  std::vector<Fd> strangers;
  for (const std::string& bytes :
       {std::string(), std::string(1, '\0'), std::string("GET / HTTP/1.1\r\n\r\n"),
        std::string(100'000, '\xff'), std::string("HCCLAUT1") + std::string(500, 'x')}) {
    strangers.push_back(meeting.connect());
    // The root may have hung up before it took all.
    static_cast<void>(send_all(strangers.back().get(), bytes, deadline));
  }
  // Holders of the secret that then do not ask for a seat: one speaks the protocol of a release
  // without a control tree.
  const std::string old = ByteWriter().put(std::uint8_t{1}).put(std::uint32_t{7}).take();
  for (const std::string& bytes :
       {frame(0, ""), frame(1u << 30, "x"), frame(join::Lines::kFrameCap + 1, good),
        frame(length, std::string(length, '\xff')), frame(length - 2, good.substr(2)),
        frame(14, ByteWriter().put(control::Kind::kLeave).take() + std::string(13, '\0')),
        frame(9, good.substr(0, 9)), frame(5, old)}) {
    const auto member = meeting.connect_as_member();
    ASSERT_TRUE(member->send(bytes).ok());
    char end = 0;
    EXPECT_EQ(member->receive(std::span(&end, 1)).code(), Code::kTcpTransfer)
        << "closed without a word";
  }
  // A question that is cut off in the middle.
  {
    const auto member = meeting.connect_as_member();
    ASSERT_TRUE(member->send(frame(length, good.substr(0, 10))).ok());
  }
  meeting.come(1, 3);
  meeting.come(2, 3);
  expect_all_in(meeting, 3);
}

// A rank's first bytes, which everybody on its way can repeat.
std::string first_message(const join::RootInfo& info) {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  const Fd ours(ends[0]), theirs(ends[1]);
  auto context = TlsContext::create();
  auto stream = TlsStream::create(context.value(), TlsStream::Side::kClient, ours.get(),
                                  tls_key(info.secret, info.id, "control"));
  EXPECT_TRUE(stream->handshake().ok());
  char bytes[4096];
  const ssize_t got = ::read(theirs.get(), bytes, sizeof bytes);
  EXPECT_GT(got, 100);
  return {bytes, static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
}

// The crowd goes on coming, 200 a second.
TEST(Join, FifteenHundredIdleConnectionsDisturbNobody) {
  constexpr int kSize = 4;
  constexpr seconds kPatience{300};  // a slow machine takes a while to let the crowd come
  struct Crowd {
    rlim_t descriptors;
    bool names_the_job;
  };
  for (const auto& [descriptors, names_the_job] :
       {Crowd{4096, false}, Crowd{200, false}, Crowd{4096, true}, Crowd{1024, true}}) {
    SCOPED_TRACE("a root with " + std::to_string(descriptors) + " descriptors" +
                 (names_the_job ? ", a crowd that names the job" : ""));
    Processes processes;
    Board& board = processes.board();
    const int crowd = processes.start([&] {
      const rlimit many{4096, 4096};
      if (::setrlimit(RLIMIT_NOFILE, &many) != 0) return 1;
      if (!eventually([&] { return board.open.load(); })) return 2;
      const auto info = join::RootInfo::decode(board.info);
      const std::string words = names_the_job ? first_message(*info) : "";
      std::deque<Fd> idle;
      const auto come = [&](nanoseconds patience) {
        auto fd = connect_tcp("127.0.0.1", info->port, "", Deadline::after(patience));
        if (!fd.ok()) return;  // the world may be complete
        static_cast<void>(send_all(fd->get(), words, Deadline::after(seconds(30))));
        idle.push_back(std::move(*fd));
      };
      for (int i = 0; i < 1500; ++i) come(seconds(30));
      // Until the last one has an answer, or was turned away.
      if (idle.empty()) return 3;
      if (names_the_job) {
        static_cast<void>(wait_fd(idle.back().get(), POLLIN, Deadline::after(seconds(30))));
      }
      board.progress[0] = idle.size();
      while (!board.first[kSize - 1].known.load()) {
        come(milliseconds(5));
        if (!idle.empty()) idle.pop_front();
        nap(milliseconds(5), Deadline::after(seconds(1)));
      }
      eventually([&] { return board.finish.load(); }, kPatience);
      return 0;
    });
    for (int r = 0; r < kSize; ++r) {
      processes.start([&, r] {
        const auto me = static_cast<std::size_t>(r);
        const rlimit few{descriptors, 4096};
        if (r == 0 && ::setrlimit(RLIMIT_NOFILE, &few) != 0) return 1;
        if (r != 0) eventually([&] { return board.progress[0] != 0; }, kPatience);
        Member member;
        Status status = processes.enter(member, kSize, r, config_of(kPatience));
        std::vector<float> data(100, 1.0F);
        for (int i = 0; i < 20 && status.ok(); ++i) status = member.world->run(sum(data));
        board.first[me].set(status);
        Processes::leave(member);
        return 0;
      });
    }
    for (int r = 0; r < kSize; ++r) {
      const Outcome& outcome = board.first[static_cast<std::size_t>(r)];
      EXPECT_TRUE(eventually([&] { return outcome.known.load(); }, kPatience));
      EXPECT_EQ(outcome.code, Code::kSuccess) << outcome.message();
    }
    EXPECT_EQ(board.progress[0], 1500u);
    board.finish = true;
    EXPECT_EQ(processes.wait(crowd), 0);
  }
}

// A limit that leaves so many descriptors, whichever are open.
rlimit limit_that_leaves(std::size_t descriptors) {
  std::vector<Fd> taken;
  for (std::size_t i = 0; i <= descriptors; ++i) taken.emplace_back(::open("/dev/null", O_RDONLY));
  return {static_cast<rlim_t>(taken.back().get()), 4096};
}

// A rank that has no descriptors left says so, with the limit and what to do; the other one hears
// which rank it is.
TEST(Join, RunningOutOfDescriptorsIsNamed) {
  constexpr int kSize = 2;
  int failures = 0;
  for (const int scarce : {0, 1}) {
    for (std::size_t spare = 1; spare < 10; spare += 2) {
      Processes processes;
      Board& board = processes.board();
      for (int r = 0; r < kSize; ++r) {
        processes.start([&, r] {
          // Rank 0 needs four for the control thread and the root.
          const rlimit few = limit_that_leaves(spare + (r == 0 ? 4 : 0));
          if (r == scarce && ::setrlimit(RLIMIT_NOFILE, &few) != 0) return 1;
          Member member;
          board.first[static_cast<std::size_t>(r)].set(
              processes.enter(member, kSize, r, config_of(seconds(10))));
          Processes::leave(member);
          return 0;
        });
      }
      const auto& own = board.first[static_cast<std::size_t>(scarce)];
      const auto& other = board.first[static_cast<std::size_t>(1 - scarce)];
      ASSERT_TRUE(eventually([&] { return own.known.load() && other.known.load(); }));
      if (own.code == Code::kSuccess) continue;
      ++failures;
      EXPECT_NE(own.message().find("ulimit -n"), std::string::npos)
          << "rank " << scarce << ": " << own.message();
      const std::string who = "rank " + std::to_string(scarce);
      EXPECT_TRUE(other.message().find(who) != std::string::npos ||
                  other.message().find("absent: " + std::to_string(scarce)) != std::string::npos ||
                  other.message().find("the root") != std::string::npos)
          << spare << ": " << other.message();
    }
  }
  EXPECT_GT(failures, 2);
}

// The ranks named in a text.
std::set<std::string> ranks_in(const std::string& text) {
  std::set<std::string> ranks;
  const std::regex number("ranks? ([0-9]+)");
  for (std::sregex_iterator at(text.begin(), text.end(), number), end; at != end; ++at) {
    ranks.insert((*at)[1]);
  }
  return ranks;
}

// The error of every rank names the rank that lacks descriptors, its limit, and nobody else.
void expect_only_lack_of(int scarce, rlim_t limit, const Outcome& outcome, bool own) {
  const std::string text = outcome.message();
  EXPECT_EQ(outcome.code, Code::kSyscall) << text;
  if (!own) {
    EXPECT_EQ(outcome.culprit, scarce) << text;
  }
  const std::string words =
      "at most " + std::to_string(limit) + " descriptors; raise the limit (ulimit -n)";
  EXPECT_NE(text.find(words), std::string::npos) << text;
  for (const std::string& named : ranks_in(text)) EXPECT_EQ(named, std::to_string(scarce)) << text;
}

// Opens a world, and calls until an error comes. Then ends the process, as programs do; that of
// rank 0, which tells the others, once all have heard. `scarce` gets this limit when all ranks are
// in the world.
[[noreturn]] void call_until_error(Processes& processes, int size, int rank, int scarce,
                                   std::size_t spare,
                                   const std::function<Status(core::Communicator&)>& call) {
  Board& board = processes.board();
  Outcome& outcome = board.first[static_cast<std::size_t>(rank)];
  std::atomic<std::uint64_t>&arrived = board.progress[0], &limit = board.progress[1],
  &since = board.progress[2];
  Member member;
  const Status entered = processes.enter(member, size, rank, quiet_config("tcp"));
  if (!entered.ok()) {
    outcome.set(entered);
    ::_exit(1);
  }
  ++arrived;
  if (!eventually([&] { return arrived == static_cast<std::uint64_t>(size); })) ::_exit(1);
  if (rank == scarce) {
    const rlimit few = limit_that_leaves(spare);
    if (::setrlimit(RLIMIT_NOFILE, &few) != 0) ::_exit(1);
    since = static_cast<std::uint64_t>(now_ns());
    limit = few.rlim_cur;
  }
  if (!eventually([&] { return limit != 0; })) ::_exit(1);
  Status status;
  while (status.ok()) status = call(*member.world);
  outcome.set(status);
  if (rank == 0) eventually([&] { return board.finish.load(); });
  ::_exit(0);
}

void expect_all_hear_of_lack(int size, int scarce, std::size_t spare,
                             const std::function<Status(core::Communicator&)>& call) {
  SCOPED_TRACE("rank " + std::to_string(scarce) + ", " + std::to_string(spare) + " spare");
  const Load load;
  Processes processes;
  Board& board = processes.board();
  for (int r = 0; r < size; ++r) {
    processes.start([&, r]() -> int { call_until_error(processes, size, r, scarce, spare, call); });
  }
  for (int r = 0; r < size; ++r) {
    const Outcome& outcome = board.first[static_cast<std::size_t>(r)];
    ASSERT_TRUE(eventually([&] { return outcome.known.load(); })) << r;
    expect_only_lack_of(scarce, board.progress[1], outcome, r == scarce);
    const nanoseconds took(outcome.at_ns - static_cast<std::int64_t>(board.progress[2].load()));
    EXPECT_LE(took, load.allows(kSoon));
  }
  board.finish = true;
}

TEST(Join, AllRanksHearWhichProcessLacksDescriptorsForLinks) {
  const auto alltoall = [](core::Communicator& world) {
    std::vector<float> in(16), out(16);
    return world.run({Op::kAllToAll, in.data(), out.data(), 1});
  };
  for (const int scarce : {0, 5}) {
    for (const std::size_t spare : {0, 1, 6}) expect_all_hear_of_lack(16, scarce, spare, alltoall);
  }
}

// Rank 0 cannot take a connection in, or rank 1 cannot make one.
TEST(Join, AllRanksHearWhichProcessLacksADescriptorForALink) {
  const auto from_rank_1 = [](core::Communicator& world) {
    std::vector<float> data(16);
    return world.run(
        {.op = Op::kBroadcast, .in = data.data(), .out = data.data(), .count = 16, .root = 1});
  };
  for (const int scarce : {0, 1}) expect_all_hear_of_lack(3, scarce, 0, from_rank_1);
}

// The other rank ends before this one comes to its own reason.
TEST(Join, TheDeathOfAnotherRankDoesNotReplaceTheOwnReason) {
  for (const char* const transport : {"auto", "tcp", "shm"}) {
    SCOPED_TRACE(transport);
    const Config config = quiet_config(transport);
    Processes processes;
    Board& board = processes.board();
    processes.start([&] {
      Member member;
      if (!processes.join(member, 2, 0, config).ok()) return 1;
      const AbortFlag never;
      // The opening of a world begins with this exchange.
      const auto met =
          member.control->exchange(core::identity(member.control->info().id, "world"), 2, 0,
                                   config.agreement() + '\0', Deadline::after(seconds(60)), never);
      return met.ok() ? 0 : 1;  // its node stays until rank 1 has the answer, too
    });
    processes.start([&] {
      Member member;
      if (!processes.join(member, 2, 1, config).ok()) return 1;
      const rlimit none = limit_that_leaves(0);
      if (::setrlimit(RLIMIT_NOFILE, &none) != 0) return 1;
      const Logger log = make_logger("off", "rank 1");
      board.first[1].set(core::Communicator::world(member.control, "world", config, log).status());
      return 0;
    });
    const Outcome& own = board.first[1];
    ASSERT_TRUE(eventually([&] { return own.known.load(); }));
    EXPECT_EQ(own.code, Code::kSyscall);
    EXPECT_NE(own.message().find("ulimit -n"), std::string::npos) << own.message();
  }
}

TEST(Join, StrangersDuringAJobChangeNothing) {
  Meeting meeting;
  const Fd idle = meeting.connect();
  const Fd half = meeting.connect();
  ASSERT_TRUE(send_all(half.get(), "HCCLAUT1", Deadline::after(seconds(9))).ok());
  for (int r = 0; r < 3; ++r) meeting.come(r, 3);
  expect_all_in(meeting, 3);
  std::vector<std::thread> ranks;
  std::vector<Status> seen(3);
  std::atomic<bool> go_on{true};
  for (std::size_t r = 0; r < 3; ++r) {
    ranks.emplace_back([&, r] {
      const Logger log = make_logger("off", "rank");
      Config config = meeting.config();
      auto world = core::Communicator::world(meeting.done()[r]->control, "world", config, log);
      seen[r] = world.status();
      if (!world.ok()) return;
      std::vector<float> go(1, 1.0F);
      // Rank 0 says when it is over, as no rank may stop alone.
      while (seen[r].ok() && go[0] != 0) {
        go[0] = r == 0 && go_on ? 1.0F : 0.0F;
        seen[r] = (*world)->run(sum(go));
      }
      (*world)->leave();
    });
  }
  for (int i = 0; i < 50; ++i) {
    auto late = start_connect_tcp("127.0.0.1", meeting.info.port, "");
    if (late.ok()) {
      static_cast<void>(send_all(late->get(), "anybody there?", Deadline::after(milliseconds(5))));
    }
    static_cast<void>(send_all(half.get(), "x", Deadline::after(milliseconds(5))));
    std::this_thread::sleep_for(milliseconds(5));
  }
  go_on = false;
  for (auto& rank : ranks) rank.join();
  for (const Status& status : seen) EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Groups, AbsentMemberIsNamed) {
  World world(3, config_of(kShort));
  ASSERT_TRUE(world.ok());
  world.run([](core::Communicator& communicator) {
    if (communicator.rank() == 1) return;
    const auto group = communicator.group("trio", {0, 1, 2}, 1);
    EXPECT_EQ(group.status().code(), Code::kTimeout);
    EXPECT_TRUE(has(group.status(), "trio: ranks that did not come: 1"))
        << group.status().message();
  });
}

TEST(Groups, SurvivorsMayFormAGroupButNotWithTheDead) {
  constexpr int kSize = 3;
  Processes processes;
  Board& board = processes.board();
  for (int r = 0; r < kSize; ++r) {
    processes.start([&, r] {
      const auto me = static_cast<std::size_t>(r);
      Member member;
      Status status = processes.enter(member, kSize, r, config_of(seconds(30)));
      ++board.progress[me];
      eventually([&] {
        return std::all_of(board.progress.begin(), board.progress.begin() + kSize,
                           [](const auto& count) { return count != 0; });
      });
      if (r == 1 || !status.ok()) return 0;  // gone without a word
      board.later[me].set(member.world->group("all", {0, 1, 2}, 1).status());
      auto pair = member.world->group("pair", {2, 0}, 1);
      std::vector<float> data(1000, 1.0F);
      status = pair.ok() ? (*pair)->run(sum(data)) : pair.status();
      if (status.ok() && data != std::vector<float>(1000, 2.0F)) {
        status = Status(Code::kInternal, "a wrong sum");
      }
      board.first[me].set(status);
      if (pair.ok()) pair->reset();
      Processes::leave(member);
      return 0;
    });
  }
  for (const std::size_t r : {std::size_t{0}, std::size_t{2}}) {
    ASSERT_TRUE(eventually([&] { return board.first[r].known.load(); }));
    EXPECT_EQ(board.first[r].code, Code::kSuccess) << board.first[r].message();
    EXPECT_EQ(board.later[r].code, Code::kRemote) << board.later[r].message();
    EXPECT_EQ(board.later[r].culprit, 1);
  }
}

// However long the others stay.
TEST(Leave, IsQuickInAnyOrder) {
  constexpr int kSize = 4;
  for (const std::array<int, kSize> order : {std::array{0, 1, 2, 3}, std::array{3, 2, 1, 0},
                                             std::array{1, 3, 0, 2}, std::array{0, 0, 0, 0}}) {
    Processes processes;
    Board& board = processes.board();
    std::atomic<std::uint64_t>* const begun = board.progress.data();
    std::atomic<std::uint64_t>* const allowed = begun + kSize;
    for (int r = 0; r < kSize; ++r) {
      processes.start([&, r] {
        const auto me = static_cast<std::size_t>(r);
        Member member;
        Status status = processes.enter(member, kSize, r, config_of(seconds(60)));
        std::vector<float> data(1000, 1.0F);
        if (status.ok()) status = member.world->run(sum(data));
        std::this_thread::sleep_for(milliseconds(100) * order[me]);
        const Load load;
        begun[me] = static_cast<std::uint64_t>(now_ns());
        Processes::leave(member);
        board.first[me].set(status);
        allowed[me] = static_cast<std::uint64_t>(load.allows(seconds(1)).count());
        return 0;
      });
    }
    for (std::size_t r = 0; r < kSize; ++r) {
      ASSERT_TRUE(eventually([&] { return board.first[r].known.load(); }));
      EXPECT_EQ(board.first[r].code, Code::kSuccess) << board.first[r].message();
      EXPECT_EQ(processes.wait(static_cast<int>(r)), 0);
      const std::int64_t took = board.first[r].at_ns - static_cast<std::int64_t>(begun[r].load());
      EXPECT_LE(took, static_cast<std::int64_t>(allowed[r].load())) << "rank " << r;
    }
  }
}

std::size_t entries(const char* directory) {
  const std::filesystem::directory_iterator all(directory);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// The root writes to rank 1, in vain, before it reads that rank 1's program has ended.
TEST(Leave, LastWordsAreHeardFromARankThatTakesNoMoreBytes) {
  Meeting meeting;
  meeting.come(0, 2);
  auto apart = make_control();
  meeting.come_apart(1, 2, apart);
  expect_all_in(meeting, 2);
  const auto& first = *meeting.done()[0];
  Ear ear;
  first.control->add(&ear);
  const auto lines = ends_at_root(meeting.info);
  ASSERT_EQ(lines.size(), 1u);
  meeting.control()->hold();
  first.control->report(Uuid{1}, Status(Code::kPara, "calls differ"));
  std::thread([&] {  // this one holds a lock that no thread has twice
    meeting.done()[1]->control->ended("barrier #4");
    const linger reset{1, 0};
    EXPECT_EQ(::setsockopt(lines[0], SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
    meeting.done()[1]->control.reset();
    apart.reset();
  })
      .join();
  meeting.control()->release();
  const Status why = ear.hears("rank 1 (127.0.0.1 pid " + std::to_string(::getpid()) + ")");
  EXPECT_TRUE(has(why, "has left: its program ended") && has(why, "after barrier #4"))
      << why.message();
  first.control->remove(&ear);
}

// All ranks that are in gather their numbers.
Status gather(join::World& world, std::uint8_t number) {
  const AbortFlag never;
  return world
      .exchange(Uuid{1, number}, static_cast<std::uint32_t>(world.size()),
                static_cast<std::uint32_t>(world.rank()), "part", Deadline::after(seconds(60)),
                never)
      .status();
}
void expect_all_gather(Meeting& meeting, std::uint8_t number) {
  std::vector<std::thread> ranks;
  for (const auto& each : meeting.done()) {
    ranks.emplace_back([&world = *each->control, number] {
      const Status status = gather(world, number);
      EXPECT_TRUE(status.ok()) << status.message();
    });
  }
  for (auto& each : ranks) each.join();
}

// Rank 0 waits to open connections, and rank 2 will.
TEST(Leave, ARankThatSaysItIsAbsentEndsTheOpening) {
  Meeting meeting;
  for (int r = 0; r < 3; ++r) meeting.come(r, 3);
  expect_all_in(meeting, 3);
  Ear ear;
  meeting.done()[2]->control->add(&ear);
  Status waits;
  std::thread early([&] { waits = gather(*meeting.done()[0]->control, 1); });
  meeting.done()[1]->control->absent(Uuid{1, 1});
  early.join();
  const std::string words = "has destroyed the communicator in which another rank opens";
  EXPECT_EQ(waits.code(), Code::kRemote);
  EXPECT_EQ(waits.culprit(), 1);
  EXPECT_TRUE(has(waits, words)) << waits.message();
  EXPECT_EQ(ear.hears(words).culprit(), 1);
  const Status late = gather(*meeting.done()[2]->control, 1);
  EXPECT_TRUE(has(late, words)) << late.message();
  meeting.done()[2]->control->remove(&ear);
}

// A root info may be made in a process that brings no rank.
TEST(Leave, TheEndOfARootWithoutARankEndsNothing) {
  Meeting meeting;
  const auto apart = make_control();
  for (int r = 0; r < 3; ++r) meeting.come_apart(r, 3, apart);
  expect_all_in(meeting, 3);
  std::array<Ear, 3> ears;
  for (std::size_t r = 0; r < 3; ++r) meeting.done()[r]->control->add(&ears[r]);
  expect_all_gather(meeting, 1);
  meeting.end_root();
  expect_all_gather(meeting, 2);
  for (const Ear& each : ears) EXPECT_FALSE(each.heard()) << each.heard()->message();
  // A failure is still told to all.
  meeting.done()[1]->control->report(Uuid{7}, Status(Code::kPara, "calls differ"));
  for (const Ear& each : ears) EXPECT_TRUE(has(each.hears("calls differ"), "calls"));
  for (std::size_t r = 0; r < 3; ++r) meeting.done()[r]->control->remove(&ears[r]);
}

// A rank knows that it is alive, even if the others take it for dead.
TEST(Leave, ARankDoesNotCallItselfDead) {
  Config config = config_of(seconds(60));
  config.peer_timeout = seconds(2);
  for (const std::size_t stopped : {0, 1, 2}) {
    SCOPED_TRACE("rank " + std::to_string(stopped));
    Meeting meeting(config);
    std::vector<std::shared_ptr<join::Control>> threads{meeting.control()};
    meeting.come(0, 3);
    for (const int rank : {1, 2}) meeting.come_apart(rank, 3, threads.emplace_back(make_control()));
    expect_all_in(meeting, 3);
    std::array<Ear, 3> ears;
    for (std::size_t r = 0; r < 3; ++r) meeting.done()[r]->control->add(&ears[r]);
    threads[stopped]->hold();
    const std::string name = "rank " + std::to_string(stopped);
    for (std::size_t r = 0; r < 3; ++r) {
      if (r == stopped) continue;
      const Status why = ears[r].hears();
      EXPECT_TRUE(has(why, name + " (127.0.0.1 pid ")) << why.message();
      EXPECT_EQ(why.culprit(), static_cast<int>(stopped));
    }
    EXPECT_FALSE(ears[stopped].heard());
    threads[stopped]->release();
    const Status own = ears[stopped].hears();
    EXPECT_TRUE(has(own, "the other ranks have not heard from " + name + " ")) << own.message();
    EXPECT_EQ(own.culprit(), Status::kNobody);
    EXPECT_TRUE(meeting.done()[stopped]->control->is_lost());
    for (std::size_t r = 0; r < 3; ++r) meeting.done()[r]->control->remove(&ears[r]);
  }
}

// The world goes on without the process that was its root.
TEST(Leave, ARankThatHasLeftIsNotCalledDead) {
  Meeting meeting;
  meeting.come(0, 2);
  meeting.come_apart(1, 2, make_control());
  expect_all_in(meeting, 2);
  join::World& stays = *meeting.done()[1]->control;
  Ear old, young;
  stays.add(&old);
  meeting.done()[0]->control->leave();
  ASSERT_TRUE(eventually([&] { return stays.has_left(0); }));
  meeting.done()[0]->control.reset();
  meeting.end_root();
  const Status why = gather(stays, 1);
  EXPECT_EQ(why.code(), Code::kRemote);
  EXPECT_TRUE(has(why, "rank 0 (") && has(why, "has destroyed its communicator")) << why.message();
  EXPECT_FALSE(has(why, "died")) << why.message();
  stays.add(&young);
  for (const Ear* each : {&old, &young}) EXPECT_FALSE(each->heard("died"));
  EXPECT_FALSE(stays.is_lost());
  stays.remove(&old);
  stays.remove(&young);
}

TEST(Leave, FiftyCyclesLeaveNoDescriptorAndNoThread) {
  const auto cycle = [](int i) {
    Config config = config_of(seconds(60));
    config.transport = i % 2 == 0 ? "auto" : "tcp";
    World world(2, config);
    ASSERT_TRUE(world.ok());
    world.run([](core::Communicator& communicator) {
      std::vector<float> data(10, 1.0F);
      EXPECT_TRUE(communicator.run(sum(data)).ok());
    });
  };
  cycle(0);
  cycle(1);
  const std::size_t descriptors = entries("/proc/self/fd");
  const std::size_t threads = entries("/proc/self/task");
  for (int i = 0; i < 50; ++i) cycle(i);
  EXPECT_EQ(entries("/proc/self/fd"), descriptors);
  // A joined thread may take a moment to vanish from the list, before the cycles and after them.
  EXPECT_TRUE(eventually([&] { return entries("/proc/self/task") <= threads; }));
}

}  // namespace
}  // namespace hccl::testing
