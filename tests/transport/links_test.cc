// Links on demand: the first message of a link, sent by either end or by both at once, opens its
// connection.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include "hccl/base/bytes.h"
#include "hccl/base/socket.h"
#include "tests/support/ranks.h"
#include "tests/support/sockets.h"
#include "tests/transport/loopback.h"
#include "transport/doors.h"
#include "transport/tcp/tcp.h"

namespace hccl::transport {
namespace {

using testing::connected_sockets;
using testing::pattern;
using testing::Rank;
using testing::run_ranks;
using testing::wait_all;
using testing::wait_one;
using namespace std::chrono_literals;
using Bytes = std::vector<std::byte>;

std::uint64_t seed_of(int from, int to) {
  return 100 * static_cast<std::uint64_t>(from) + static_cast<std::uint64_t>(to);
}

void pass_around_ring(Mesh& mesh) {
  const int size = mesh.size(), left = (mesh.rank() + size - 1) % size;
  Bytes out = pattern(1000, static_cast<std::uint64_t>(mesh.rank())), in(out.size());
  Request send, recv;
  mesh.send(send, (mesh.rank() + 1) % size, 0, out);
  mesh.recv(recv, left, 0, in);
  const Status status = wait_all(mesh, {&send, &recv});
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(in, pattern(1000, static_cast<std::uint64_t>(left)));
}

TEST(TcpLinks, ARingHoldsARing) {
  constexpr int kRanks = 12;
  run_ranks(kRanks, [](Rank& rank) {
    auto mesh = open_tcp(rank.open_args(soon()));
    ASSERT_TRUE(mesh.ok()) << mesh.status().message();
    rank.barrier();
    EXPECT_EQ(connected_sockets(), 0);
    rank.barrier();
    pass_around_ring(**mesh);
    rank.barrier();
    EXPECT_EQ(connected_sockets(), 2 * kRanks);
    rank.barrier();
  });
}

TEST(TcpLinks, MeshesOfARankShareADoor) {
  run_ranks(3, [](Rank& rank) {
    const auto doors = std::make_shared<Doors>();
    std::vector<std::unique_ptr<Mesh>> meshes;
    const auto threads = [] {
      return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
    };
    rank.barrier();
    const auto before = threads();
    rank.barrier();
    for (std::uint8_t i = 0; i < 20; ++i) {
      OpenArgs args = rank.open_args(soon());
      args.doors = doors;
      args.key[0] = i;
      auto mesh = open_tcp(args);
      ASSERT_TRUE(mesh.ok()) << mesh.status().message();
      meshes.push_back(std::move(*mesh));
    }
    rank.barrier();
    EXPECT_EQ(threads(), before + 3);  // three ranks have a door thread each
    rank.barrier();
    for (const auto& mesh : meshes) pass_around_ring(*mesh);
    rank.barrier();
  });
}

// With each wire: each pair begins with messages in one direction, in both, or in none, in random
// order.
TEST(TcpLinks, AnyFirstUsersConnect) {
  constexpr int kRanks = 6;  // 30 directions, about 60 % of them used
  const char* const wanted = std::getenv("HCCL_TEST_ROUNDS");
  const int rounds = wanted != nullptr ? std::atoi(wanted) : 120;
  for (int round = 0; round < rounds; ++round) {
    run_ranks(kRanks, [round](Rank& rank) {
      OpenArgs args = rank.open_args(soon());
      Config config = *args.config;
      config.wire = round % 3 == 0 ? Wire::kPlain : round % 3 == 1 ? Wire::kCrc : Wire::kTls;
      args.config = &config;
      auto mesh = open_tcp(args);
      ASSERT_TRUE(mesh.ok()) << mesh.status().message();
      std::mt19937 shared(static_cast<unsigned>(round));
      std::vector<std::pair<int, int>> uses;
      for (int from = 0; from < kRanks; ++from) {
        for (int to = 0; to < kRanks; ++to) {
          if (from != to && shared() % 5 < 3) uses.emplace_back(from, to);
        }
      }
      std::mt19937 own(static_cast<unsigned>(round * kRanks + rank.rank()));
      std::shuffle(uses.begin(), uses.end(), own);
      std::vector<Request> requests(uses.size());
      std::vector<Bytes> data(uses.size());
      std::vector<Request*> mine;
      for (std::size_t i = 0; i < uses.size(); ++i) {
        const auto [from, to] = uses[i];
        const std::uint64_t seed = seed_of(from, to);
        const std::size_t bytes = seed % 3 == 0 ? 100'000 : 10;
        if (own() % 4 == 0) (*mesh)->progress();
        if (from == rank.rank()) {
          data[i] = pattern(bytes, seed);
          (*mesh)->send(requests[i], to, 0, data[i]);
        } else if (to == rank.rank()) {
          data[i].resize(bytes);
          (*mesh)->recv(requests[i], from, 0, data[i]);
        } else {
          continue;
        }
        mine.push_back(&requests[i]);
      }
      const Status status = wait_all(**mesh, mine);
      ASSERT_TRUE(status.ok()) << "round " << round << ": " << status.message();
      for (std::size_t i = 0; i < uses.size(); ++i) {
        const auto [from, to] = uses[i];
        if (to != rank.rank()) continue;
        EXPECT_EQ(data[i], pattern(data[i].size(), seed_of(from, to)));
      }
      rank.barrier();
    });
  }
}

// The two ranks have exchanged no message, so no connection can report the end.
TEST(TcpLinks, AnEndedPeerIsNamedWithoutAConnection) {
  for (const bool sends : {true, false}) {
    run_ranks(3, [sends](Rank& rank) {
      auto mesh = open_tcp(rank.open_args(soon()));
      ASSERT_TRUE(mesh.ok()) << mesh.status().message();
      rank.barrier();
      if (rank.rank() == 1) mesh->reset();
      rank.barrier();
      if (rank.rank() != 1) {
        Bytes bytes(100);
        Request request;
        sends ? (*mesh)->send(request, 1, 0, bytes) : (*mesh)->recv(request, 1, 0, bytes);
        const Status status = wait_one(**mesh, request);
        EXPECT_EQ(status.code(), Code::kRemote) << status.message();
        EXPECT_EQ(status.culprit(), 1) << status.message();
      }
      rank.barrier();
      if (rank.rank() == 0) {  // the other pair is not affected
        Bytes bytes(100);
        Request request;
        (*mesh)->send(request, 2, 0, bytes);
        EXPECT_TRUE(wait_one(**mesh, request).ok());
      } else if (rank.rank() == 2) {
        Bytes bytes(100);
        Request request;
        (*mesh)->recv(request, 0, 0, bytes);
        EXPECT_TRUE(wait_one(**mesh, request).ok());
      }
      rank.barrier();
    });
  }
}

// The rank of the ended mesh is still there, and its door reports the mesh's end. Without the
// report, a rank would retry closed connections for a second, and add that reason to the text.
TEST(TcpLinks, TheDoorSaysThatAMeshHasEnded) {
  for (const Wire wire : {Wire::kPlain, Wire::kTls}) {
    run_ranks(2, [wire](Rank& rank) {
      const auto doors = std::make_shared<Doors>();
      std::vector<std::unique_ptr<Mesh>> meshes;
      for (std::uint8_t i = 0; i < 2; ++i) {
        OpenArgs args = rank.open_args(soon());
        Config config = *args.config;
        config.wire = wire;
        args.config = &config;
        args.doors = doors;
        args.key[0] = i;
        auto mesh = open_tcp(args);
        ASSERT_TRUE(mesh.ok()) << mesh.status().message();
        meshes.push_back(std::move(*mesh));
      }
      rank.barrier();
      if (rank.rank() == 1) meshes[0].reset();
      rank.barrier();
      if (rank.rank() == 0) {
        Bytes bytes(100);
        Request request;
        meshes[0]->send(request, 1, 0, bytes);
        const Status status = wait_one(*meshes[0], request);
        EXPECT_EQ(status.code(), Code::kRemote) << status.message();
        EXPECT_EQ(status.culprit(), 1) << status.message();
        EXPECT_EQ(status.message().find('('), std::string::npos) << status.message();
      }
      pass_around_ring(*meshes[1]);
      rank.barrier();
    });
  }
}

/// A port that does not answer new connections, as if a firewall dropped the packets.
struct DeadPort {
  DeadPort() {
    fd = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(fd.get(), 0), 0);
    EXPECT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port = ntohs(address.sin_port);
    for (int i = 0; i < 3; ++i) {  // these fill its queue
      fill.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      const int begun = ::connect(fill.back().get(), reinterpret_cast<sockaddr*>(&address), size);
      EXPECT_TRUE(begun == 0 || errno == EINPROGRESS) << errno;
    }
  }
  Fd fd;
  std::vector<Fd> fill;
  std::uint16_t port = 0;
};

/// Opens a mesh in which rank `blind` cannot connect to rank `hidden`.
Result<std::unique_ptr<Mesh>> open_one_way(Rank& rank, int blind, int hidden,
                                           const DeadPort& dead) {
  OpenArgs args = rank.open_args(soon());
  args.exchange = [&](std::string mine, Deadline deadline) {
    auto all = rank.exchange()(std::move(mine), deadline);
    if (rank.rank() == blind) {
      all.value()[static_cast<std::size_t>(hidden)] =
          ByteWriter()
              .put(std::int32_t{0})
              .put_text(ByteWriter().put(dead.port).put_text("127.0.0.1").take())
              .take();
    }
    return all;
  };
  return open_tcp(args);
}

TEST(TcpLinks, OneDirectionOfConnectingIsEnough) {
  const DeadPort dead;
  for (const int blind : {0, 1}) {
    for (const int sender : {0, 1, 2}) {  // 2: both ranks send at once
      run_ranks(2, [&](Rank& rank) {
        const int other = 1 - rank.rank();
        auto mesh = open_one_way(rank, blind, 1 - blind, dead);
        ASSERT_TRUE(mesh.ok()) << mesh.status().message();
        Bytes out = pattern(1000, 1), in(1000);
        Request send, recv;
        std::vector<Request*> mine;
        if (sender != other) {
          (*mesh)->send(send, other, 0, out);
          mine.push_back(&send);
        }
        if (sender != rank.rank()) {
          (*mesh)->recv(recv, other, 0, in);
          mine.push_back(&recv);
        }
        const Status status = wait_all(**mesh, mine);
        EXPECT_TRUE(status.ok()) << blind << sender << ": " << status.message();
        if (sender != rank.rank()) {
          EXPECT_EQ(in, out);
        }
        rank.barrier();
      });
    }
  }
}

TEST(TcpLinks, AnUnreachablePeerIsNamedAfterTheTimeToConnect) {
  const DeadPort dead;
  run_ranks(2, [&](Rank& rank) {
    OpenArgs args = rank.open_args(soon());
    Config config = *args.config;
    config.connect_timeout = 3s;
    args.config = &config;
    args.exchange = [&](std::string mine, Deadline deadline) {
      auto all = rank.exchange()(std::move(mine), deadline);
      all.value()[static_cast<std::size_t>(1 - rank.rank())] =
          ByteWriter()
              .put(std::int32_t{0})
              .put_text(ByteWriter().put(dead.port).put_text("127.0.0.1").take())
              .take();
      return all;
    };
    auto mesh = open_tcp(args);
    ASSERT_TRUE(mesh.ok()) << mesh.status().message();
    Bytes bytes(100);
    Request request;
    (*mesh)->send(request, 1 - rank.rank(), 0, bytes);
    const Status status = wait_one(**mesh, request);
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_EQ(status.culprit(), 1 - rank.rank());
    EXPECT_NE(status.message().find(":" + std::to_string(dead.port)), std::string::npos)
        << status.message();
    rank.barrier();
  });
}

}  // namespace
}  // namespace hccl::transport
