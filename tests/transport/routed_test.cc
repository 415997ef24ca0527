// The transport "auto": which transport carries the bytes, and a wait that covers both transports.
#include "transport/routed.h"

#include <gtest/gtest.h>

#include <array>
#include <mutex>
#include <string>
#include <thread>

#include "tests/support/ranks.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"

namespace hccl::transport {
namespace {

using std::chrono::seconds;
using testing::exchange_all;
using testing::Rank;
using testing::run_ranks;
using testing::sleep_until_done;
using testing::wait_one;

OpenArgs args_of(const Rank& rank, std::vector<int> hosts) {
  OpenArgs args = rank.open_args(Deadline::after(seconds(30)));
  args.hosts = std::move(hosts);
  return args;
}

/// Opens a mesh with these hosts, exchanges data between all pairs, and returns the names of the
/// meshes.
std::vector<std::string> names(const std::vector<int>& hosts) {
  std::vector<std::string> names(hosts.size());
  run_ranks(static_cast<int>(hosts.size()), [&](Rank& rank) {
    auto mesh = open_routed(args_of(rank, hosts));
    ASSERT_TRUE(mesh.ok()) << mesh.status().message();
    EXPECT_EQ((*mesh)->rank(), rank.rank());
    EXPECT_EQ((*mesh)->size(), rank.size());
    names[static_cast<std::size_t>(rank.rank())] = (*mesh)->name();
    for (const std::size_t bytes : {0, 5, 50'000, 3 << 20}) exchange_all(**mesh, bytes);
    rank.barrier();
  });
  return names;
}

TEST(Routed, TakesTheWayThatTheHostsCallFor) {
  EXPECT_EQ(names({0, 0, 0}), (std::vector<std::string>{"shm", "shm", "shm"}));
  EXPECT_EQ(names({0, 1, 2}), (std::vector<std::string>{"tcp", "tcp", "tcp"}));
  EXPECT_EQ(names({0, 0, 1, 1}), std::vector<std::string>(4, "auto"));
  EXPECT_EQ(names({3, 7, 3, 7, 9}), std::vector<std::string>(5, "auto"));
  EXPECT_EQ(names({5}).size(), 1u);
}

/// Opens a mesh with these hosts; ranks whose host is kAbsent take no part. A message between each
/// pair of the others arrives, and a message to an absent rank fails.
void lacks(const std::vector<int>& hosts, std::string_view name) {
  std::vector<int> here;
  for (int rank = 0; rank < static_cast<int>(hosts.size()); ++rank) {
    if (hosts[static_cast<std::size_t>(rank)] != OpenArgs::kAbsent) here.push_back(rank);
  }
  run_ranks(static_cast<int>(here.size()), [&](Rank& rank) {
    OpenArgs args = args_of(rank, hosts);
    args.rank = here[static_cast<std::size_t>(rank.rank())];
    args.size = static_cast<int>(hosts.size());
    args.exchange = [&](std::string mine, Deadline until) -> Result<std::vector<std::string>> {
      HCCL_ASSIGN_OR_RETURN(const auto parts, rank.exchange()(std::move(mine), until));
      std::vector<std::string> all(hosts.size());
      for (std::size_t i = 0; i < parts.size(); ++i) {
        all[static_cast<std::size_t>(here[i])] = parts[i];
      }
      return all;
    };
    auto mesh = open_routed(args);
    ASSERT_TRUE(mesh.ok()) << mesh.status().message();
    EXPECT_EQ((*mesh)->name(), name);
    for (int peer = 0; peer < args.size; ++peer) {
      std::array<std::byte, 1> sent{static_cast<std::byte>(args.rank)}, got{};
      Request send, recv;
      (*mesh)->recv(recv, peer, 0, got);
      (*mesh)->send(send, peer, 0, sent);
      if (args.absent(peer)) {
        EXPECT_FALSE(wait_one(**mesh, send, seconds(5)).ok());
        EXPECT_FALSE(wait_one(**mesh, recv, seconds(5)).ok());
        EXPECT_NE(send.status().message().find("rank " + std::to_string(peer)), std::string::npos);
        continue;
      }
      EXPECT_TRUE(wait_one(**mesh, send).ok());
      EXPECT_TRUE(wait_one(**mesh, recv).ok()) << recv.status().message();
      EXPECT_EQ(static_cast<int>(got[0]), peer);
    }
    rank.barrier();
  });
}

TEST(Routed, ConnectsTheRanksThatAreThere) {
  constexpr int kAbsent = OpenArgs::kAbsent;
  lacks({0, kAbsent, 0}, "shm");
  lacks({kAbsent, 0, 0}, "shm");
  lacks({0, kAbsent, 1}, "tcp");
  lacks({kAbsent, 4, kAbsent, 4, 7}, "auto");
  lacks({kAbsent, 0}, "shm");
}

// Rank 0 sleeps as soon as nothing moves. It waits for messages through shared memory and through a
// socket in turn, and both must wake it.
TEST(Routed, OneSleepCoversBothWays) {
  run_ranks(3, [](Rank& rank) {
    auto opened = open_routed(args_of(rank, {0, 0, 1}));
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    Mesh& mesh = **opened;
    const auto finish = [&mesh](const Request& request) {
      return sleep_until_done(mesh, request) && request.status().ok();
    };
    for (int i = 0; i < 500; ++i) {
      for (const int peer : {1, 2}) {
        int value = i * peer;
        Request request;
        if (rank.rank() == 0) {
          mesh.recv(request, peer, 0, std::as_writable_bytes(std::span(&value, 1)));
          ASSERT_TRUE(finish(request)) << "round " << i << " peer " << peer;
          ASSERT_EQ(value, i * peer);
          mesh.send(request, peer, 0, std::as_bytes(std::span(&value, 1)));
          ASSERT_TRUE(finish(request));
        } else if (rank.rank() == peer) {
          mesh.send(request, 0, 0, std::as_bytes(std::span(&value, 1)));
          ASSERT_TRUE(finish(request));
          mesh.recv(request, 0, 0, std::as_writable_bytes(std::span(&value, 1)));
          ASSERT_TRUE(finish(request)) << "round " << i;
        }
      }
    }
    rank.barrier();
  });
}

// Rank 1 cannot join the shared memory of its host: host 0 uses sockets, host 1 is not affected.
TEST(Routed, HostWithoutSharedMemoryFallsBackToTcpWithOneWarning) {
  std::mutex mutex;
  std::vector<std::string> warnings;
  std::vector<std::string> names(5);
  run_ranks(5, [&](Rank& rank) {
    RouteParts parts;
    parts.shm = [](const OpenArgs& args) {
      OpenArgs changed = args;
      if (args.rank == 1) changed.key[0] ^= 1;
      return open_shm_on_host(changed);
    };
    parts.tcp = &open_tcp;
    parts.warn = [&](std::string_view text) {
      std::lock_guard lock(mutex);
      warnings.push_back("rank " + std::to_string(rank.rank()) + ": " + std::string(text));
    };
    auto mesh = open_routed(args_of(rank, {0, 0, 0, 1, 1}), parts);
    ASSERT_TRUE(mesh.ok()) << mesh.status().message();
    names[static_cast<std::size_t>(rank.rank())] = (*mesh)->name();
    for (const std::size_t bytes : {0, 5, 50'000, 3 << 20}) exchange_all(**mesh, bytes);
    rank.barrier();
  });
  EXPECT_EQ(names, (std::vector<std::string>{"tcp", "tcp", "tcp", "auto", "auto"}));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].find("rank 0: "), 0u) << warnings[0];
  EXPECT_NE(warnings[0].find("tcp"), std::string::npos);
}

// The first attempt to open was aborted. If the process has a reason of its own, that is reported,
// and not the abort's.
TEST(Routed, AnAbortedOpeningTriesNoSecondTransport) {
  run_ranks(1, [](Rank& rank) {
    RouteParts parts;
    parts.shm = [](const OpenArgs&) -> Result<std::unique_ptr<Mesh>> {
      return Status(Code::kSyscall, "no descriptor");
    };
    parts.tcp = [](const OpenArgs&) -> Result<std::unique_ptr<Mesh>> {
      return Status(Code::kTimeout, "nobody came");
    };
    parts.warn = [](std::string_view text) { ADD_FAILURE() << text; };
    AbortFlag abort;
    abort.raise(Status(Code::kRemote, "rank 2 left", 2));
    OpenArgs args = args_of(rank, {0});
    args.abort = &abort;
    EXPECT_EQ(open_routed(args, parts).status().message(), "no descriptor");
  });
}

// A rank of this host comes too late, so no time is left for tcp. But a step of shm may end early.
TEST(Routed, ATimeoutInsideAHostTriesNoSecondTransport) {
  RouteParts parts;
  parts.shm = [](const OpenArgs&) -> Result<std::unique_ptr<Mesh>> {
    return Status(Code::kTimeout, "rank 1 did not come", 1);
  };
  parts.tcp = [](const OpenArgs&) -> Result<std::unique_ptr<Mesh>> {
    return Status(Code::kTimeout, "tcp");
  };
  for (const auto& hosts : {std::vector<int>{0, 0}, std::vector<int>{0, 0, 1}}) {
    run_ranks(static_cast<int>(hosts.size()), [&](Rank& rank) {
      OpenArgs args = args_of(rank, hosts);
      EXPECT_EQ(open_routed(args, parts).status().message(), "tcp");
      args.deadline = Deadline::after(seconds(0));
      EXPECT_EQ(open_routed(args, parts).status().message(), "rank 1 did not come");
    });
  }
}

TEST(Routed, AbortFailsBothWays) {
  run_ranks(3, [](Rank& rank) {
    auto mesh = open_routed(args_of(rank, {0, 0, 1}));
    ASSERT_TRUE(mesh.ok()) << mesh.status().message();
    if (rank.rank() == 0) {
      std::vector<std::byte> bytes(100);
      Request near;
      Request far;
      (*mesh)->recv(near, 1, 0, bytes);
      (*mesh)->recv(far, 2, 0, bytes);
      std::jthread other([&] { (*mesh)->abort(Status(Code::kRemote, "rank 2 died", 2)); });
      EXPECT_EQ(wait_one(**mesh, near).culprit(), 2);
      EXPECT_EQ(wait_one(**mesh, far).culprit(), 2);
      Request late;
      (*mesh)->send(late, 2, 0, bytes);
      EXPECT_TRUE(late.done());
    }
    rank.barrier();
  });
}

}  // namespace
}  // namespace hccl::transport
