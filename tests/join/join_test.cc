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

#include "hccl/base/random.h"
#include "hccl/base/tls.h"
#include "hccl/core/opening.h"
#include "tests/support/config.h"
#include "tests/support/load.h"
#include "tests/support/processes.h"
#include "tests/support/world.h"

namespace hccl::testing {
namespace {

using join::wire::Kind;
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

// A coordinator, and ranks that come to it on threads of their own.
class Meeting {
 public:
  explicit Meeting(seconds patience = seconds(60)) : config_(config_of(patience)) {
    EXPECT_TRUE(random_bytes(info.secret.data(), info.secret.size()).ok());
    EXPECT_TRUE(random_bytes(info.id.data(), info.id.size()).ok());
    info.address = "127.0.0.1";
    auto started = join::Coordinator::start(info, config_, make_logger("off", "coordinator"));
    EXPECT_TRUE(started.ok()) << started.status().message();
    if (started.ok()) coordinator_ = std::move(*started);
  }
  ~Meeting() {
    for (auto& thread : threads_) thread.join();
  }

  /// Starts to join; done() has the result.
  void come(int rank, int size) { come(rank, size, config_, info); }
  void come(int rank, int size, const Config& config, const join::RootInfo& with) {
    const std::size_t place = results_.size();
    results_.emplace_back(std::make_unique<Came>());
    threads_.emplace_back([=, this] {
      const auto begun = Deadline::Clock::now();
      auto control = join::ControlLine::join(with, size, rank, config, make_logger("off", "rank"));
      results_[place]->took = Deadline::Clock::now() - begun;
      results_[place]->status = control.status();
      if (control.ok()) results_[place]->control = *control;
      ++ended_;
    });
  }
  struct Came {
    Status status;
    nanoseconds took{0};
    std::shared_ptr<join::ControlLine> control;
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

  /// A connection to the coordinator.
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
  join::Coordinator& coordinator() { return *coordinator_; }
  void end_coordinator() { coordinator_.reset(); }

  join::RootInfo info;

 private:
  Config config_;
  std::unique_ptr<join::Coordinator> coordinator_;
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

std::string hello(std::uint32_t rank, std::uint32_t size, const std::string& agreement,
                  std::uint32_t version = join::wire::kVersion) {
  join::wire::Member me;
  me.rank = rank;
  me.host = "elsewhere";
  me.address = "127.0.0.1";
  ByteWriter out;
  out.put(Kind::kHello).put(version).put(size).put_text(agreement);
  join::wire::put(out, me);
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

/// Until the coordinator has seen all that reached it before: it then refuses an impossible rank.
void settle(const Meeting& meeting, std::uint32_t size) {
  const auto impossible = meeting.connect_as_member();
  EXPECT_TRUE(impossible->send_frame(hello(size, size, meeting.config().agreement())).ok());
  next_answer(*impossible);
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
}

TEST(Join, RankThatDiesWhileOthersJoinIsNamed) {
  Meeting meeting(kShort);
  meeting.come(0, 4);
  meeting.come(1, 4);
  die_while_joining(meeting, 2, 4);
  for (const auto& came : meeting.done()) {
    EXPECT_EQ(came->status.code(), Code::kTimeout);
    EXPECT_TRUE(has(came->status, "absent: 2, 3")) << came->status.message();
  }
}

TEST(Join, RankThatDiesWhileOthersJoinMayComeAgain) {
  Meeting meeting;
  meeting.come(0, 3);
  die_while_joining(meeting, 2, 3);
  settle(meeting, 3);
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
  settle(meeting, 3);
  meeting.come(1, 3);
  meeting.come(2, 4);
  expect_all_refused(meeting, load, "rank 2 says 4 ranks", "says 3");
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
  settle(meeting, 2);
  ASSERT_TRUE(other->send_frame(hello(1, 2, "", join::wire::kVersion + 1)).ok());
  const std::string of_both = "rank 1 speaks protocol " + std::to_string(join::wire::kVersion + 1) +
                              ", the root " + std::to_string(join::wire::kVersion);
  for (Secured* each : {first.get(), other.get()}) {
    const std::string answer = next_answer(*each);
    ByteReader in(answer);
    EXPECT_EQ(in.get<Kind>(), Kind::kRefused);
    const Status why = join::wire::get_status(in);
    EXPECT_EQ(why.code(), Code::kPara);
    EXPECT_TRUE(has(why, "EI0008") && has(why, of_both)) << why.message();
  }
}

// As a root does that ends between the proof of a rank and its hello.
TEST(Join, ARootThatHangsUpBeforeTheHelloIsNamed) {
  Meeting meeting;
  const auto hang_up = [&](const std::shared_ptr<join::ControlLine>&) {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      const int fd = std::stoi(entry.path().filename());
      sockaddr_in peer{};
      socklen_t size = sizeof peer;
      if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
          peer.sin_family == AF_INET && peer.sin_port == htons(meeting.info.port)) {
        ::shutdown(fd, SHUT_WR);  // so that the rank's next words fail
      }
    }
    return Status();
  };
  const auto joined = join::ControlLine::join(meeting.info, 2, 1, meeting.config(),
                                              make_logger("off", "rank"), hang_up);
  EXPECT_EQ(joined.status().code(), Code::kTcpTransfer);
  EXPECT_TRUE(has(joined.status(), "the root")) << joined.status().message();
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
    meeting.coordinator().hold();
    for (int r = 0; r < 2; ++r) meeting.come(r, 2, meeting.config(), guessed);
    EXPECT_TRUE(eventually([&] {
      return std::all_of(silent.begin(), silent.end(),
                         [](Silent& each) { return each.count() == 2; });
    }));
    meeting.coordinator().release();
    return expect_all_in(meeting, 2);
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
    // The coordinator may have hung up before it took all.
    static_cast<void>(send_all(strangers.back().get(), bytes, deadline));
  }
  // Holders of the secret that then send what is no hello.
  for (const std::string& bytes :
       {frame(0, ""), frame(1u << 30, "x"), frame(join::wire::kHelloCap + 1, good),
        frame(length, std::string(length, '\xff')), frame(length - 2, good.substr(2)),
        frame(1, ByteWriter().put(Kind::kLeave).take()), frame(9, good.substr(0, 9))}) {
    const auto member = meeting.connect_as_member();
    ASSERT_TRUE(member->send(bytes).ok());
    char end = 0;
    EXPECT_EQ(member->receive(std::span(&end, 1)).code(), Code::kTcpTransfer)
        << "closed without a word";
  }
  // A hello that is cut off in the middle.
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
    SCOPED_TRACE("coordinator with " + std::to_string(descriptors) + " descriptors" +
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
          // Rank 0 needs four for the coordinator.
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
      return met.ok() ? 0 : 1;  // the coordinator answers its own rank last: rank 1 has its answer
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
    EXPECT_TRUE(has(group.status(), "trio")) << group.status().message();
    EXPECT_TRUE(has(group.status(), "did not come: 1")) << group.status().message();
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
    }
    // All wait for the last one; that takes less than a second more.
    const std::uint64_t last = *std::max_element(begun, begun + kSize);
    const std::uint64_t allowance = *std::max_element(allowed, allowed + kSize);
    for (std::size_t r = 0; r < kSize; ++r) {
      const std::int64_t took = board.first[r].at_ns - static_cast<std::int64_t>(last);
      EXPECT_LE(took, static_cast<std::int64_t>(allowance)) << "rank " << r;
    }
  }
}

std::size_t entries(const char* directory) {
  const std::filesystem::directory_iterator all(directory);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

class Ear final : public join::FailureListener {
 public:
  void on_failure(const Uuid&, const Status& why) override {
    const std::lock_guard lock(mutex_);
    heard_ = why;
  }
  void on_summons(const Uuid&) override {}
  Status heard() const {
    const std::lock_guard lock(mutex_);
    return heard_;
  }

 private:
  mutable std::mutex mutex_;
  Status heard_;
};

// The coordinator writes to rank 1, in vain, before it reads that rank 1's program has ended.
TEST(Leave, LastWordsAreHeardFromARankThatTakesNoMoreBytes) {
  Meeting meeting;
  meeting.come(0, 2);
  auto other = meeting.connect_as_member();
  ASSERT_TRUE(other->send_frame(hello(1, 2, meeting.config().agreement())).ok());
  const auto& first = *meeting.done()[0];
  ASSERT_TRUE(first.status.ok()) << first.status.message();
  Ear ear;
  first.control->add(&ear);
  meeting.coordinator().hold();
  first.control->report(Uuid{1}, Status(Code::kPara, "calls differ"));
  ASSERT_TRUE(other->send_frame(ByteWriter().put(Kind::kEnd).put_text("barrier #4").take()).ok());
  other.reset();  // it has not read the table: its socket is reset
  meeting.coordinator().release();
  const Deadline deadline = Deadline::after(seconds(60));
  while (ear.heard().ok() && !deadline.expired()) nap(milliseconds(1), deadline);
  EXPECT_TRUE(has(ear.heard(), "rank 1 (127.0.0.1 pid 0) has left: its program ended") &&
              has(ear.heard(), "after barrier #4"))
      << ear.heard().message();
  first.control->remove(&ear);
}

// A rank knows that it is alive, even if the coordinator in its process is not.
TEST(Leave, ARankDoesNotCallItselfDead) {
  Meeting meeting;
  for (int r = 0; r < 2; ++r) meeting.come(r, 2);
  expect_all_in(meeting, 2);
  Ear ears[2];
  for (std::size_t r = 0; r < 2; ++r) meeting.done()[r]->control->add(&ears[r]);
  meeting.end_coordinator();
  EXPECT_TRUE(eventually([&] { return !ears[0].heard().ok() && !ears[1].heard().ok(); }));
  const Status own = ears[0].heard(), other = ears[1].heard();
  EXPECT_TRUE(has(own, "rank 0 (") && has(own, "was cut off from the coordinator in its own"))
      << own.message();
  EXPECT_EQ(own.culprit(), Status::kNobody);
  EXPECT_TRUE(has(other, "rank 0 (") && has(other, "died or was cut off")) << other.message();
  EXPECT_EQ(other.culprit(), 0);
  for (std::size_t r = 0; r < 2; ++r) meeting.done()[r]->control->remove(&ears[r]);
}

// The other ranks need the coordinator in its process, and hear why it has gone.
TEST(Leave, ARankThatHasLeftIsNotCalledDead) {
  Meeting meeting;
  for (int r = 0; r < 2; ++r) meeting.come(r, 2);
  expect_all_in(meeting, 2);
  join::ControlLine& stays = *meeting.done()[1]->control;
  Ear old, young;
  stays.add(&old);
  meeting.done()[0]->control->leave({});
  ASSERT_TRUE(eventually([&] { return stays.has_left(0); }));
  meeting.end_coordinator();
  const AbortFlag never;
  const Status why =
      stays.exchange(Uuid{1}, 2, 1, "part", Deadline::after(seconds(60)), never).status();
  EXPECT_EQ(why.code(), Code::kRemote);
  EXPECT_TRUE(has(why, "rank 0 (") && has(why, "has destroyed its communicator")) << why.message();
  EXPECT_FALSE(has(why, "died")) << why.message();
  stays.add(&young);
  EXPECT_EQ(young.heard().message(), why.message());
  EXPECT_TRUE(old.heard().ok()) << old.heard().message();
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
