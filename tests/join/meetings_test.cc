// Joining: many ranks join quickly; a rank that is missing or different is named; strangers have no
// effect.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <deque>
#include <iostream>
#include <thread>

#include "hccl/join/worlds.h"
#include "tests/join/join_parts.h"
#include "tests/support/load.h"
#include "tests/support/processes.h"
#include "tests/support/siblings.h"

namespace hccl::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

TEST(Join, SixtyFourProcessesJoinAndSum) {
  constexpr int kSize = 64;
  constexpr seconds kPatience{300};  // few cores may have to run all ranks
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
        status = member.world->operations().run(sum(data));
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
  EXPECT_GE(longest, kShort - milliseconds(100));  // the time for which the first rank waits
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

TEST(Join, ALineThatIsCutBeforeTheRankAsksIsDialedAgain) {
  for (const int how : {SHUT_WR, SHUT_RDWR}) {
    Meeting meeting;
    std::size_t cut = 0;
    const auto hang_up = [&] {
      for (const int fd : ends_at_root(meeting.info)) cut += ::shutdown(fd, how) == 0 ? 1 : 0;
      return Status();
    };
    meeting.come(0, 2);
    const auto joined = join::World::join(new_node(meeting.control(), meeting.info), 2, 1,
                                          meeting.config(), make_logger("off", "rank"), hang_up);
    EXPECT_EQ(cut, 1u);
    EXPECT_TRUE(joined.ok()) << joined.status().message();
    expect_all_in(meeting, 1);
  }
}

TEST(Join, ARootThatEndsBeforeTheRankAsksIsNamed) {
  Meeting meeting(kShort);
  const auto end = [&] {
    meeting.end_root();
    return Status();
  };
  const auto joined = join::World::join(new_node(meeting.control(), meeting.info), 2, 1,
                                        meeting.config(), make_logger("off", "rank"), end);
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

// A listener that accepts connections and never answers.
struct Silent {
  Listener listener;
  std::vector<Fd> connections = {};

  // The number of connections that are still open.
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

// The root does not answer until the ranks wait at all ports at the same time.
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
    if (silent.size() < kSilent) continue;  // other programs may have the other ports
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

TEST(Join, TheRootTakesAPortOfTheNextRangeIfTheFirstIsTaken) {
  const auto taken = listen_tcp("127.0.0.1", 0);
  ASSERT_TRUE(taken.ok());
  const std::uint16_t port = taken->port;
  Config config = config_of(seconds(60));
  config.port_ranges = {
      {port, port}, {static_cast<std::uint16_t>(port + 1), static_cast<std::uint16_t>(port + 50)}};
  join::Worlds worlds;
  const auto info = worlds.make_root(config, true);
  ASSERT_TRUE(info.ok()) << info.status().message();
  EXPECT_GT(info->port, port);
  EXPECT_LE(info->port, port + 50);
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
  // Strangers that cannot prove that they have the secret.
  std::vector<Fd> strangers;
  for (const std::string& bytes :
       {std::string(), std::string(1, '\0'), std::string("GET / HTTP/1.1\r\n\r\n"),
        std::string(100'000, '\xff'), std::string("HCCLAUT1") + std::string(500, 'x')}) {
    strangers.push_back(meeting.connect());
    // The root may have closed the connection before it read all bytes.
    static_cast<void>(send_all(strangers.back().get(), bytes, deadline));
  }
  // Holders of the secret that do not ask for a seat. One of them uses the protocol of an older
  // version, which had no control tree.
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
  // A request for a seat that is cut off in the middle.
  {
    const auto member = meeting.connect_as_member();
    ASSERT_TRUE(member->send(frame(length, good.substr(0, 10))).ok());
  }
  meeting.come(1, 3);
  meeting.come(2, 3);
  expect_all_in(meeting, 3);
}

// A rank's first bytes, which anyone on the way can record and repeat.
std::string first_message(const join::RootInfo& info) {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  const Fd ours(ends[0]), theirs(ends[1]);
  auto context = make_tls_context();
  auto stream = TlsStream::create(context.value(), TlsStream::Side::kClient, ours.get(),
                                  tls_key(info.secret, info.id, "control"));
  EXPECT_TRUE(stream->handshake().ok());
  char bytes[4096];
  const ssize_t got = ::read(theirs.get(), bytes, sizeof bytes);
  EXPECT_GT(got, 100);
  return {bytes, static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
}

// New connections keep coming, 200 a second.
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
        auto fd = connect_tcp("127.0.0.1", info->port, Deadline::after(patience));
        if (!fd.ok()) return;  // the world may be complete
        static_cast<void>(send_all(fd->get(), words, Deadline::after(seconds(30))));
        idle.push_back(std::move(*fd));
      };
      for (int i = 0; i < 1500; ++i) come(seconds(30));
      // Waits until the last connection has an answer, or was closed.
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
        for (int i = 0; i < 20 && status.ok(); ++i)
          status = member.world->operations().run(sum(data));
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
      auto world = core::Communicator::world(meeting.done()[r]->control, "world", config, log,
                                             testing::siblings());
      seen[r] = world.status();
      if (!world.ok()) return;
      std::vector<float> go(1, 1.0F);
      // Rank 0 decides when the test ends: all ranks must stop after the same operation.
      while (seen[r].ok() && go[0] != 0) {
        go[0] = r == 0 && go_on ? 1.0F : 0.0F;
        seen[r] = (*world)->operations().run(sum(go));
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

}  // namespace
}  // namespace hccl::testing
