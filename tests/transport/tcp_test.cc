// The tcp transport beyond the contract: strangers, missing ranks, hostile peers, bounded memory.
#include "transport/tcp/tcp.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "hccl/base/auth.h"
#include "hccl/base/bytes.h"
#include "hccl/base/socket.h"
#include "tests/support/blocking.h"
#include "tests/support/load.h"
#include "tests/support/ranks.h"
#include "tests/transport/loopback.h"
#include "transport/tcp/frame.h"

namespace hccl::transport {
namespace {

using testing::pattern;
using testing::Rank;
using testing::run_ranks;
using testing::wait_all;
using testing::wait_one;
using namespace std::chrono_literals;
using Bytes = std::vector<std::byte>;

/// The data that a rank publishes in the exchange of open_tcp().
std::string published(std::uint16_t port) {
  return ByteWriter()
      .put(std::int32_t{0})
      .put_text(ByteWriter().put(port).put_text(kAddress).take())
      .take();
}
std::uint16_t published_port(const std::string& blob) {
  ByteReader outer(blob);
  outer.get<std::int32_t>();
  const std::string part = outer.get_text(1000);
  return ByteReader(part).get<std::uint16_t>();
}

Fd connect_to(std::uint16_t port) {
  auto fd = connect_tcp(kAddress, port, soon());
  EXPECT_TRUE(fd.ok()) << fd.status().message();
  return fd.ok() ? std::move(*fd) : Fd();
}

/// Returns whether the other end closes the connection.
bool gets_closed(int fd) {
  const Deadline deadline = soon();
  char bytes[256];
  while (!deadline.expired()) {
    const ssize_t got = ::recv(fd, bytes, sizeof bytes, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN)) return true;
    if (got < 0) static_cast<void>(wait_fd(fd, POLLIN, deadline));
  }
  return false;
}

Handshake client_handshake(const Key& key, int to) {
  const Key id = derive(key, "tcp mesh id");
  Uuid uuid{};
  std::memcpy(uuid.data(), id.data(), uuid.size());
  return Handshake(Handshake::Side::kClient, key, uuid, "tcp data to rank " + std::to_string(to));
}

std::string hello(std::uint32_t from, std::uint32_t to) {
  return ByteWriter()
      .put(std::array<char, 4>{'H', 'T', 'C', 'P'})
      .put(std::uint32_t{2})
      .put(from)
      .put(to)
      .put(std::uint32_t{0})
      .take();
}

/// Joins like a peer that holds the key, but sends only the first `bytes` bytes of a client's
/// messages.
void join_partly(int fd, Handshake handshake, const std::string& last_words, std::size_t bytes) {
  const auto send = [&](std::string text) {
    text.resize(std::min(text.size(), bytes));
    bytes -= text.size();
    return send_all(fd, text, soon()).ok();
  };
  if (!send(handshake.first()) || bytes == 0) return;
  std::string reply(handshake.wants(), '\0');
  if (!recv_all(fd, reply, soon()).ok()) return;
  auto proof = handshake.step(reply);
  if (!proof.ok()) return;
  if (send(*proof)) send(last_words);
}

/// Opens a mesh on `size` ranks. `strangers` runs on rank 0, gets rank 0's port, and ends before
/// the last rank begins to connect. Then checks that messages pass.
void join_among(int size,
                const std::function<void(std::uint16_t port, const Key& key)>& strangers) {
  const testing::Load load;
  run_ranks(size, [&](Rank& rank) {
    OpenArgs args = rank.open_args(soon());
    std::jthread busy;
    auto start = Deadline::Clock::now();
    args.exchange = [&](std::string mine, Deadline deadline) {
      auto all = rank.exchange()(std::move(mine), deadline);
      if (rank.rank() == 0) {
        busy = std::jthread([&, port = published_port(all.value()[0])] {
          strangers(port, args.key);
          rank.barrier();
        });
      } else if (rank.rank() == rank.size() - 1) {
        rank.barrier();
      } else {
        busy = std::jthread([&] { rank.barrier(); });
      }
      start = Deadline::Clock::now();
      return all;
    };
    auto mesh = open_tcp(args);
    ASSERT_TRUE(mesh.ok()) << mesh.status().message();
    const Status connected = connect_all(**mesh);
    const auto took = Deadline::Clock::now() - start;
    if (busy.joinable()) busy.join();
    // The last rank begins after the strangers, which must not delay it.
    if (rank.rank() == size - 1) {
      EXPECT_LT(took, load.allows(3s));
    }
    ASSERT_TRUE(connected.ok()) << connected.message();
    Bytes out = pattern(100'000, static_cast<std::uint64_t>(rank.rank()));
    Bytes in(100'000);
    Request send;
    Request recv;
    const int left = (rank.rank() + size - 1) % size;
    (*mesh)->send(send, (rank.rank() + 1) % size, 0, out);
    (*mesh)->recv(recv, left, 0, in);
    EXPECT_TRUE(wait_all(**mesh, {&send, &recv}).ok());
    EXPECT_EQ(in, pattern(100'000, static_cast<std::uint64_t>(left)));
    rank.barrier();
  });
}

/// Returns whether an open connection to the port has sent all bytes that a joining rank sends, and
/// the owner of the port has read them.
bool has_joined(std::uint16_t port, const Key& key) {
  std::size_t sent = 0, unread = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    sockaddr_in own{}, peer{};
    socklen_t own_size = sizeof own, peer_size = sizeof peer;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
        ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) {
      continue;
    }
    tcp_info info{};
    socklen_t size = sizeof info;
    int left = 0;
    if (peer.sin_port == htons(port) &&
        ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0) {
      sent = std::max<std::size_t>(sent, info.tcpi_bytes_acked);
    } else if (own.sin_port == htons(port) && ::ioctl(fd, FIONREAD, &left) == 0) {
      unread += static_cast<std::size_t>(left);
    }
  }
  return sent >= client_handshake(key, 0).first().size() + 32 + hello(1, 0).size() && unread == 0;
}

/// Waits until rank 0 has read the bytes with which rank 1 joins.
void await_join(std::uint16_t port, const Key& key) {
  const Deadline deadline = soon();
  while (!has_joined(port, key) && !deadline.expired()) std::this_thread::sleep_for(1ms);
}

TEST(TcpJoin, GarbageIsDropped) {
  join_among(3, [](std::uint16_t port, const Key&) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      const Bytes bytes = pattern(1 + 300 * seed, seed);
      const Fd fd = connect_to(port);
      // The rank may close the connection before all bytes are sent.
      static_cast<void>(
          send_all(fd.get(), {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, soon()));
      if (bytes.size() > 300) {
        EXPECT_TRUE(gets_closed(fd.get())) << seed;
      }
    }
  });
}

TEST(TcpJoin, AnotherKeyIsRefused) {
  join_among(3, [](std::uint16_t port, const Key& key) {
    Key other = key;
    other[31] ^= 1;
    const Fd fd = connect_to(port);
    EXPECT_FALSE(authenticate(fd.get(), client_handshake(other, 0), soon()).ok());
  });
}

TEST(TcpJoin, DisconnectingAtAnyByteDoesNotDisturb) {
  join_among(3, [](std::uint16_t port, const Key& key) {
    const std::size_t all = client_handshake(key, 0).first().size() + 32 + hello(2, 0).size();
    for (std::size_t bytes = 0; bytes < all; ++bytes) {
      const Fd fd = connect_to(port);
      join_partly(fd.get(), client_handshake(key, 0), hello(2, 0), bytes);
    }
  });
}

TEST(TcpJoin, RanksThatAreNotAwaitedAreRefused) {
  join_among(3, [](std::uint16_t port, const Key& key) {
    // A number out of range, the rank's own number, and a connection for another rank.
    const std::pair<std::uint32_t, std::uint32_t> wrong[] = {
        {3, 0}, {0xffffffff, 0}, {0, 0}, {2, 1}};
    for (const auto& [from, to] : wrong) {
      const Fd fd = connect_to(port);
      join_partly(fd.get(), client_handshake(key, 0), hello(from, to), 1000);
      EXPECT_TRUE(gets_closed(fd.get())) << from << " to " << to;
    }
    // Rank 1 joins at once; a stranger that then claims rank 1's number is refused.
    await_join(port, key);
    const Fd fd = connect_to(port);
    join_partly(fd.get(), client_handshake(key, 0), hello(1, 0), 1000);
    EXPECT_TRUE(gets_closed(fd.get()));
  });
}

TEST(TcpJoin, IdleStrangersCostNothing) {
  std::vector<Fd> idle;
  join_among(2, [&](std::uint16_t port, const Key&) {
    for (int i = 0; i < 700; ++i) idle.push_back(connect_to(port));
  });
}

TEST(TcpJoin, HangsUpOnStrangersThatStaySilent) {
  join_among(2, [](std::uint16_t port, const Key& key) {
    const Fd silent = connect_to(port);
    const Fd halfway = connect_to(port);
    join_partly(halfway.get(), client_handshake(key, 0), "", 10);
    EXPECT_TRUE(gets_closed(silent.get()));
    EXPECT_TRUE(gets_closed(halfway.get()));
  });
}

TEST(TcpJoin, ManagesWithoutFreeDescriptors) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<Fd> idle;
  join_among(2, [&](std::uint16_t port, const Key&) {
    for (int i = 0; i < 60; ++i) idle.push_back(connect_to(port));
    std::this_thread::sleep_for(50ms);  // the rank accepts them
    // One descriptor is left: rank 1's end of the connection takes it, and rank 0 has none.
    const int lowest = ::fcntl(0, F_DUPFD_CLOEXEC, 0);
    ASSERT_GE(lowest, 0);
    ::close(lowest);
    const rlimit low{static_cast<rlim_t>(lowest) + 1, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  });
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/// A process that holds so many silent connections to a port, and replaces 200 of them a second.
class Strangers {
 public:
  explicit Strangers(std::size_t connections) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    port_ = Fd(ends[1]);
    process_ = ::fork();
    EXPECT_GE(process_, 0);
    if (process_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      port_ = {};
      std::uint16_t port = 0;
      if (::read(ends[0], &port, sizeof port) != sizeof port) ::_exit(1);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      address.sin_port = htons(port);
      std::vector<Fd> held(connections);
      for (std::size_t next = 0;; ++next) {
        if (next >= connections && next % 40 == 0) std::this_thread::sleep_for(200ms);
        Fd& each = held[next % connections];
        each = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        const int begun =
            ::connect(each.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
        if (begun != 0 && errno != EINPROGRESS) each = {};
      }
    }
    ::close(ends[0]);
  }
  ~Strangers() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  Strangers(const Strangers&) = delete;
  Strangers& operator=(const Strangers&) = delete;

  void begin(std::uint16_t port) const {
    EXPECT_EQ(::write(port_.get(), &port, sizeof port), static_cast<ssize_t>(sizeof port));
  }

 private:
  Fd port_;
  pid_t process_ = -1;
};

TEST(TcpJoin, StrangersLeaveDescriptorsForTheRank) {
  const Strangers strangers(1000);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{500, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  run_ranks(2, [&](Rank& rank) {
    OpenArgs args = rank.open_args(soon());
    args.exchange = [&](std::string mine, Deadline deadline) {
      auto all = rank.exchange()(std::move(mine), deadline);
      if (rank.rank() == 0) strangers.begin(published_port(all.value()[0]));
      return all;
    };
    auto mesh = open_tcp(args);
    ASSERT_TRUE(mesh.ok()) << mesh.status().message();
    std::this_thread::sleep_for(1s);  // the strangers take what they can get
    rank.barrier();
    Bytes bytes(100);
    Request request;  // rank 1's connection comes through the door of rank 0
    if (rank.rank() == 0) {
      (*mesh)->recv(request, 1, 0, bytes);
    } else {
      (*mesh)->send(request, 0, 0, bytes);
    }
    const Status status = wait_one(**mesh, request);
    EXPECT_TRUE(status.ok()) << status.message();
    rank.barrier();
  });
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/// Opens a mesh, and all its links within three seconds. Returns the failure.
Status join_impatiently(Rank& rank, OpenArgs args) {
  Config config = *args.config;
  config.connect_timeout = 3s;
  args.config = &config;
  auto mesh = open_tcp(args);
  const Status status = mesh.ok() ? connect_all(**mesh) : mesh.status();
  rank.barrier();
  return status;
}

TEST(TcpJoin, NamesTheRankThatDoesNotConnect) {
  run_ranks(4, [](Rank& rank) {
    OpenArgs args = rank.open_args(soon());
    if (rank.rank() == 2) {
      auto listener = listen_tcp(kAddress, 0);
      ASSERT_TRUE(listener.ok());
      static_cast<void>(args.exchange(published(listener->port), args.deadline));
      rank.barrier();
      return;
    }
    const Status status = join_impatiently(rank, args);
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_EQ(status.culprit(), 2);
    EXPECT_NE(status.message().find("no connection to rank 2"), std::string::npos)
        << status.message();
  });
}

TEST(TcpJoin, NamesTheRankWithAnotherKey) {
  run_ranks(3, [](Rank& rank) {
    OpenArgs args = rank.open_args(soon());
    if (rank.rank() == 1) args.key[0] ^= 0x80;
    const Status status = join_impatiently(rank, args);
    EXPECT_EQ(status.culprit(), rank.rank() == 1 ? 0 : 1) << status.message();
  });
}

TEST(TcpJoin, ARankThatCannotListenFailsAllAtOnce) {
  run_ranks(3, [](Rank& rank) {
    OpenArgs args = rank.open_args(Deadline::after(30s));
    if (rank.rank() == 1) args.address = "203.0.113.77";
    auto mesh = open_tcp(args);
    ASSERT_FALSE(mesh.ok());
    EXPECT_NE(mesh.status().message().find("203.0.113.77"), std::string::npos)
        << mesh.status().message();
    if (rank.rank() != 1) {
      EXPECT_EQ(mesh.status().culprit(), 1);
    }
    EXPECT_FALSE(args.deadline.expired());
    rank.barrier();
  });
}

/// The names of the congestion control of this process's connected TCP sockets.
std::multiset<std::string> congestion_controls() {
  std::multiset<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    sockaddr_in peer{};
    socklen_t peer_size = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) continue;
    std::array<char, 32> name{};
    socklen_t size = name.size();
    if (::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) == 0) {
      names.insert(name.data());
    }
  }
  return names;
}

TEST(TcpLink, OnlyHostsApartPaceWhatTheySend) {
  std::string systems;
  std::ifstream("/proc/sys/net/ipv4/tcp_congestion_control") >> systems;
  for (const int other_host : {0, 1}) {
    run_ranks(2, [&](Rank& rank) {
      OpenArgs args = rank.open_args(soon());
      args.hosts = {0, other_host};
      const auto mesh = open_tcp(args);
      ASSERT_TRUE(mesh.ok()) << mesh.status().message();
      ASSERT_TRUE(connect_all(**mesh).ok());
      rank.barrier();
      const std::string expected = other_host == 0 ? "reno" : systems;
      EXPECT_EQ(congestion_controls(), (std::multiset<std::string>{expected, expected}));
      rank.barrier();
    });
  }
}

// The path to a host that acknowledges packets works, even if its rank reads nothing for long.
TEST(TcpLink, ABusyPeerIsNoBrokenPath) {
  run_ranks(2, [](Rank& rank) {
    OpenArgs args = rank.open_args(soon());
    Config config = *args.config;
    config.peer_timeout = 1s;
    args.config = &config;
    args.hosts = {0, 1};
    auto mesh = open_tcp(args);
    ASSERT_TRUE(mesh.ok()) << mesh.status().message();
    // One message is much longer than the sockets' buffers; the others fill the window.
    std::vector<Bytes> all(65, Bytes(1000));
    all.front().resize(64 << 20);
    std::vector<Request> requests(all.size());
    std::vector<Request*> awaited;
    if (rank.rank() == 1) std::this_thread::sleep_for(3500ms);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (rank.rank() == 0) {
        (*mesh)->send(requests[i], 1, 0, all[i]);
      } else {
        (*mesh)->recv(requests[i], 0, 0, all[i]);
      }
      awaited.push_back(&requests[i]);
    }
    const Status status = wait_all(**mesh, awaited);
    EXPECT_TRUE(status.ok()) << status.message();
    rank.barrier();
  });
}

// A rank may post requests after prepare() and before sleep(). Then sleep() looks once more.
TEST(TcpLink, WhatIsPostedOnTheWayToSleepIsSent) {
  run_ranks(2, [](Rank& rank) {
    OpenArgs args = rank.open_args(soon());
    auto mesh = open_tcp(args);
    ASSERT_TRUE(mesh.ok()) << mesh.status().message();
    ASSERT_TRUE(connect_all(**mesh).ok());
    Bytes bytes(100);
    Request request;
    if (rank.rank() == 1) {
      (*mesh)->recv(request, 0, 0, bytes);
      EXPECT_TRUE(wait_one(**mesh, request).ok());
      rank.barrier();
      return;
    }
    Sleeper& sleeper = (*mesh)->sleeper();
    const auto ticket = sleeper.prepare();
    (*mesh)->send(request, 1, 0, bytes);
    rank.barrier();
    sleeper.sleep(ticket, 0s);
    sleeper.awake();
    EXPECT_TRUE(wait_one(**mesh, request).ok());
  });
}

TEST(TcpLink, WhatBlocksOnTheWayToSleepWakes) {
  run_ranks(2, [](Rank& rank) {
    OpenArgs args = rank.open_args(soon());
    auto mesh = open_tcp(args);
    ASSERT_TRUE(mesh.ok()) << mesh.status().message();
    ASSERT_TRUE(connect_all(**mesh).ok());
    Bytes bytes(std::size_t{8} << 20);
    Request request;
    if (rank.rank() == 1) {
      (*mesh)->recv(request, 0, 0, bytes);
      (*mesh)->progress();  // tells the peer that a receive is posted, and reads nothing
      rank.barrier();
      rank.barrier();
      EXPECT_TRUE(wait_one(**mesh, request).ok());
      rank.barrier();
      return;
    }
    (*mesh)->send(request, 1, 0, bytes);
    rank.barrier();
    Sleeper& sleeper = (*mesh)->sleeper();
    const auto ticket = sleeper.prepare();
    // Begins to stream: the socket has room for more bytes than one turn sends.
    while (!(*mesh)->progress()) {
    }
    const auto begin = std::chrono::steady_clock::now();
    sleeper.sleep(ticket, 60s);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 60s);
    sleeper.awake();
    rank.barrier();
    EXPECT_TRUE(wait_one(**mesh, request).ok());
    rank.barrier();
  });
}

TEST(TcpLink, HoldsBackWhatNobodyReceives) {
  run_ranks(2, [](Rank& rank) {
    OpenArgs args = rank.open_args(soon());
    auto mesh = open_tcp(args);
    ASSERT_TRUE(mesh.ok()) << mesh.status().message();
    ASSERT_TRUE(connect_all(**mesh).ok());
    constexpr std::size_t kMessages = 400;
    constexpr std::size_t kSize = 50'000;
    std::vector<Bytes> bytes(kMessages, Bytes(kSize));
    std::vector<Request> requests(kMessages);
    std::vector<Request*> all;
    for (std::size_t i = 0; i < kMessages; ++i) {
      all.push_back(&requests[i]);
      if (rank.rank() == 0) (*mesh)->send(requests[i], 1, i % 8, bytes[i]);
    }
    Request never;
    Bytes in(1);
    (*mesh)->recv(never, 1 - rank.rank(), 200, in);
    EXPECT_EQ(wait_one(**mesh, never, 500ms).code(), Code::kTimeout);
    if (rank.rank() == 0) {
      const auto done = std::count_if(requests.begin(), requests.end(),
                                      [](const Request& request) { return request.done(); });
      EXPECT_LE(static_cast<std::size_t>(done) * kSize, tcp::kEagerWindow);
      EXPECT_GT(done, 0);
    }
    rank.barrier();
    if (rank.rank() == 1) {
      for (std::size_t i = 0; i < kMessages; ++i) (*mesh)->recv(requests[i], 0, i % 8, bytes[i]);
    }
    EXPECT_TRUE(wait_all(**mesh, all).ok());
    rank.barrier();
    (*mesh)->abort(Status(Code::kSuspending, "end of the test"));
    (*mesh)->progress();
  });
}

// Rank 0 posts no receive, and all other ranks send: rank 0's memory does not grow with their
// number.
TEST(TcpLink, HoldsBackWhatManySendTogether) {
  constexpr int kRanks = 14;
  constexpr std::size_t kSize = 10'000;
  std::atomic<std::size_t> sent{0};
  run_ranks(kRanks, [&](Rank& rank) {
    OpenArgs args = rank.open_args(soon());
    auto mesh = open_tcp(args);
    ASSERT_TRUE(mesh.ok()) << mesh.status().message();
    ASSERT_TRUE(connect_all(**mesh).ok());
    constexpr std::size_t kMessages = 60;
    std::vector<Bytes> bytes(kMessages * kRanks);
    std::vector<Request> requests(kMessages * kRanks);
    std::vector<Request*> all;
    if (rank.rank() != 0) {
      for (std::size_t i = 0; i < kMessages; ++i) {
        bytes[i] = pattern(kSize, static_cast<std::uint64_t>(rank.rank()) + i);
        all.push_back(&requests[i]);
        (*mesh)->send(requests[i], 0, i % 8, bytes[i]);
      }
    }
    Request never;
    Bytes in(1);
    (*mesh)->recv(never, (rank.rank() + 1) % kRanks, 200, in);
    const Deadline patience = soon();
    std::size_t mine = 0;
    do {
      EXPECT_EQ(wait_one(**mesh, never, 500ms).code(), Code::kTimeout);
      const std::size_t before = mine;
      mine = 0;
      for (const Request* request : all) mine += request->done() ? kSize : 0;
      sent += mine - before;
    } while (sent <= tcp::kEagerTotal / 4 && !patience.expired());
    rank.barrier();
    if (rank.rank() == 0) {
      EXPECT_LE(sent, tcp::kEagerTotal);
      EXPECT_GT(sent, tcp::kEagerTotal / 4);
      for (std::size_t peer = 1; peer < kRanks; ++peer) {
        for (std::size_t i = 0; i < kMessages; ++i) {
          const std::size_t at = peer * kMessages + i;
          bytes[at].resize(kSize);
          all.push_back(&requests[at]);
          (*mesh)->recv(requests[at], static_cast<int>(peer), i % 8, bytes[at]);
        }
      }
    }
    EXPECT_TRUE(wait_all(**mesh, all).ok());
    for (std::size_t peer = 1; rank.rank() == 0 && peer < kRanks; ++peer) {
      for (std::size_t i = 0; i < kMessages; ++i) {
        ASSERT_EQ(bytes[peer * kMessages + i], pattern(kSize, peer + i));
      }
    }
    rank.barrier();
    (*mesh)->abort(Status(Code::kSuspending, "end of the test"));
    (*mesh)->progress();
  });
}

TEST(TcpLink, WhatArrivedBeforeTheCloseIsStillDelivered) {
  run_ranks(2, [](Rank& rank) {
    auto mesh = open_tcp(rank.open_args(soon()));
    ASSERT_TRUE(mesh.ok()) << mesh.status().message();
    if (rank.rank() == 1) {
      Bytes small = pattern(1000, 1);
      Bytes large = pattern(60'000, 2);
      Request first;
      Request second;
      (*mesh)->send(first, 0, 0, small);
      (*mesh)->send(second, 0, 3, large);
      ASSERT_TRUE(wait_all(**mesh, {&first, &second}).ok());
      *mesh = nullptr;
      rank.barrier();
      return;
    }
    rank.barrier();
    Request request;
    Bytes none;
    (*mesh)->recv(request, 1, 9, none);
    EXPECT_EQ(wait_one(**mesh, request).code(), Code::kRemote);
    Bytes large(60'000);
    (*mesh)->recv(request, 1, 3, large);
    EXPECT_TRUE(wait_one(**mesh, request).ok());
    EXPECT_EQ(large, pattern(60'000, 2));
    Bytes small(1000);
    (*mesh)->recv(request, 1, 0, small);
    EXPECT_TRUE(wait_one(**mesh, request).ok());
    EXPECT_EQ(small, pattern(1000, 1));
    (*mesh)->recv(request, 1, 0, small);
    EXPECT_EQ(wait_one(**mesh, request).culprit(), 1);
  });
}

/// A mesh of rank 0. The test acts as rank 1, with a plain authenticated socket.
struct Played {
  std::unique_ptr<Mesh> mesh;
  Fd peer;
};
Played play_rank_1() {
  Rank rank(0, 2, nullptr);
  OpenArgs args = rank.open_args(soon());
  Played played;
  std::jthread peer;
  args.exchange = [&](std::string mine, Deadline) -> Result<std::vector<std::string>> {
    peer = std::jthread([&played, port = published_port(mine), key = args.key] {
      played.peer = connect_to(port);
      join_partly(played.peer.get(), client_handshake(key, 0), hello(1, 0), 1000);
      std::string answer(16, '\0');
      EXPECT_TRUE(recv_all(played.peer.get(), answer, soon()).ok());
    });
    return std::vector<std::string>{std::move(mine), published(1)};
  };
  auto mesh = open_tcp(args);
  EXPECT_TRUE(mesh.ok()) << mesh.status().message();
  if (mesh.ok()) played.mesh = std::move(*mesh);
  return played;
}

std::string frame(tcp::FrameType type, std::uint8_t lane, std::uint32_t sequence,
                  std::uint64_t length) {
  return ByteWriter().put(tcp::FrameHeader{type, lane, 0, sequence, length}).take();
}

TEST(TcpLink, FramesThatBreakTheRulesEndTheLink) {
  using tcp::FrameType;
  std::string flood;
  for (std::uint32_t i = 0; i < 9; ++i) {
    flood += frame(FrameType::kEager, 0, 10 + i, 60'000) + std::string(60'000, 'x');
  }
  std::string questions;
  for (std::uint32_t i = 0; i <= tcp::kAskWindow; ++i) {
    questions += frame(FrameType::kAsk, 0, 10 + i, 1 << 30);
  }
  // The limit counts all lanes together.
  std::string receives;
  for (std::uint32_t i = 0; i <= tcp::kReadyCap; ++i) {
    receives += frame(FrameType::kReady, static_cast<std::uint8_t>(i % 256), 10 + i / 256, 1);
  }
  const std::pair<const char*, std::string> wrong[] = {
      {"receive flood", receives},
      {"unknown type", frame(static_cast<FrameType>(9), 0, 0, 0)},
      {"unknown type zero", std::string(16, '\0')},
      {"eager too long", frame(FrameType::kEager, 0, 0, tcp::kEagerLimit + 1)},
      {"eager absurdly long", frame(FrameType::kEager, 0, 0, ~std::uint64_t{0})},
      {"eager before the window", frame(FrameType::kEager, 0, 0x80000010, 4)},
      {"eager flood", flood},
      {"the same eager twice",
       frame(FrameType::kEager, 1, 7, 1) + "x" + frame(FrameType::kEager, 1, 7, 1)},
      {"question flood", questions},
      {"unasked data", frame(FrameType::kData, 0, 0, 10)},
      {"data longer than the receive", frame(FrameType::kData, 5, 0, 100'001)},
      {"data of nothing", frame(FrameType::kData, 5, 0, 0)},
      {"too much credit", frame(FrameType::kCredit, 0, 0, 1)},
      {"absurd credit", frame(FrameType::kCredit, 0, 0, ~std::uint64_t{0})},
  };
  for (const auto& [name, bytes] : wrong) {
    SCOPED_TRACE(name);
    Played played = play_rank_1();
    ASSERT_NE(played.mesh, nullptr);
    Bytes small(10);
    Bytes large(100'000);
    Request first;
    Request second;
    played.mesh->recv(first, 1, 0, small);
    played.mesh->recv(second, 1, 5, large);
    // More bytes than the socket takes at once.
    std::jthread writer([&] { static_cast<void>(send_all(played.peer.get(), bytes, soon())); });
    EXPECT_EQ(wait_all(*played.mesh, {&first, &second}).code(), Code::kTcpTransfer);
    writer.join();
    EXPECT_EQ(first.status().culprit(), 1);
    EXPECT_EQ(second.status().culprit(), 1);
    ASSERT_TRUE(first.done() && second.done());
  }
}

TEST(TcpLink, RandomFramesNeverWriteOutsideTheBuffers) {
  for (unsigned seed = 0; seed < 150; ++seed) {
    Played played = play_rank_1();
    ASSERT_NE(played.mesh, nullptr);
    std::mt19937 random(seed);
    // Guard bytes surround the memory that may be written.
    Bytes memory(3000, std::byte{0xAB});
    std::vector<Request> receives(4);
    std::vector<Request> sends(4);
    Bytes out(200'000);
    for (std::uint32_t i = 0; i < 4; ++i) {
      played.mesh->recv(receives[i], 1, i % 2, std::span(memory).subspan(500 + 500 * i, 100 * i));
      played.mesh->send(sends[i], 1, i % 2, std::span(out).first(i * 60'000));
    }
    std::string bytes;
    for (int i = 0; i < 30; ++i) {
      const auto type = static_cast<tcp::FrameType>(1 + random() % 5);
      const std::uint64_t length = random() % 4 == 0 ? random() % 200'000 : 100 * (random() % 4);
      bytes += frame(type, random() % 2, random() % 4, length);
      if (type == tcp::FrameType::kEager) bytes += std::string(std::min(length, 65536ul), 'y');
      if (type == tcp::FrameType::kData) bytes += std::string(std::min(length, 500ul), 'z');
    }
    std::jthread writer(
        [&] { static_cast<void>(send_all(played.peer.get(), bytes, Deadline::after(2s))); });
    const Deadline end = Deadline::after(20ms);
    while (!end.expired()) played.mesh->progress();
    played.mesh->abort(Status(Code::kSuspending, "end of the test"));
    played.mesh->progress();
    writer.join();
    for (const Request& request : receives) ASSERT_TRUE(request.done());
    for (const Request& request : sends) ASSERT_TRUE(request.done());
    for (std::size_t at = 0; at < memory.size(); ++at) {
      const std::size_t slot = at < 500 ? 4 : (at - 500) / 500;
      const bool inside = slot < 4 && (at - 500) % 500 < 100 * slot;
      if (!inside) {
        ASSERT_EQ(memory[at], std::byte{0xAB}) << "at " << at << " with seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace hccl::transport
