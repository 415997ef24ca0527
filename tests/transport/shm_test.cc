// Shared memory between ranks that are threads: rules that the contract does not contain for every
// transport.
#include "transport/shm/shm.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "hccl/base/socket.h"
#include "tests/support/folder.h"
#include "tests/support/ranks.h"
#include "tests/support/sanitizers.h"

namespace hccl::transport {
namespace {

using std::chrono::seconds;
using testing::pattern;
using testing::Rank;
using testing::run_ranks;
using testing::same;
using testing::sleep_until_done;
using testing::wait_all;
using testing::wait_one;

std::unique_ptr<Mesh> open(const Rank& rank) {
  auto mesh = open_shm(rank.open_args(Deadline::after(seconds(30))));
  EXPECT_TRUE(mesh.ok()) << mesh.status().message();
  return mesh.ok() ? std::move(mesh).value() : nullptr;
}

TEST(ShmWakeUp, IsNeverLostInPingPong) {
  constexpr int kRounds = testing::kThreadSanitizer ? 20'000 : 100'000;
  run_ranks(2, [](Rank& rank) {
    const auto mesh = open(rank);
    ASSERT_NE(mesh, nullptr);
    const int peer = 1 - rank.rank();
    std::uint32_t out = 0;
    std::uint32_t in = 0;
    Request send;
    Request receive;
    for (std::uint32_t i = 0; i < kRounds; ++i) {
      const auto pass = [&] {
        out = 3 * i;
        mesh->send(send, peer, i % 7, std::as_bytes(std::span(&out, 1)));
        ASSERT_TRUE(sleep_until_done(*mesh, send)) << "round " << i;
      };
      if (rank.rank() == 0) pass();
      mesh->recv(receive, peer, i % 7, std::as_writable_bytes(std::span(&in, 1)));
      ASSERT_TRUE(sleep_until_done(*mesh, receive)) << "round " << i;
      ASSERT_EQ(in, 3 * i);
      if (rank.rank() == 1) pass();
    }
  });
}

TEST(ShmWakeUp, IsNeverLostWaitingForRoomOrForAReceive) {
  constexpr int kRounds = testing::kThreadSanitizer ? 100 : 300;
  run_ranks(2, [](Rank& rank) {
    const auto mesh = open(rank);
    ASSERT_NE(mesh, nullptr);
    std::vector<std::byte> bytes(5 << 20);  // more than the ring
    Request request;
    for (int i = 0; i < kRounds; ++i) {
      const std::size_t size = i % 3 == 0 ? bytes.size() : 20'000;
      if (rank.rank() == 0) {
        bytes[size - 1] = static_cast<std::byte>(i);
        mesh->send(request, 1, 0, std::span(bytes).first(size));
      } else {
        if (i % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        mesh->recv(request, 0, 0, std::span(bytes).first(size));
      }
      ASSERT_TRUE(sleep_until_done(*mesh, request)) << "round " << i;
      ASSERT_TRUE(request.status().ok());
      ASSERT_EQ(bytes[size - 1], static_cast<std::byte>(i));
    }
  });
}

// The receiver posts its receives lane by lane, in reverse order. There are more small messages
// than may be staged.
TEST(Shm, LanesDoNotWaitForEachOther) {
  constexpr std::uint32_t kLanes = 40;
  constexpr int kEach = 60;
  run_ranks(2, [](Rank& rank) {
    const auto mesh = open(rank);
    ASSERT_NE(mesh, nullptr);
    const auto size_of = [](std::uint32_t lane, int i) -> std::size_t {
      return lane % 5 == 4 ? 300'000 : static_cast<std::size_t>(i * 130);
    };
    std::vector<std::vector<std::byte>> data;
    std::vector<Request> requests(kLanes * kEach);
    std::vector<Request*> all;
    std::size_t next = 0;
    data.reserve(requests.size());
    for (std::uint32_t l = 0; l < kLanes; ++l) {
      const std::uint32_t lane = rank.rank() == 0 ? l : kLanes - 1 - l;
      std::vector<Request*> lane_requests;
      const std::size_t first = data.size();
      for (int i = 0; i < kEach; ++i) {
        const std::size_t size = size_of(lane, i);
        Request& request = requests[next++];
        lane_requests.push_back(&request);
        if (rank.rank() == 0) {
          data.push_back(pattern(size, lane * 1000 + static_cast<std::uint64_t>(i)));
          mesh->send(request, 1, lane, data.back());
          all.push_back(&request);
        } else {
          data.emplace_back(size);
          mesh->recv(request, 0, lane, data.back());
        }
      }
      if (rank.rank() == 0) continue;
      const Status status = wait_all(*mesh, lane_requests);
      ASSERT_TRUE(status.ok()) << "lane " << lane << ": " << status.message();
      for (int i = 0; i < kEach; ++i) {
        ASSERT_TRUE(same(data[first + static_cast<std::size_t>(i)],
                         pattern(size_of(lane, i), lane * 1000 + static_cast<std::uint64_t>(i))));
      }
    }
    const Status status = wait_all(*mesh, all);
    ASSERT_TRUE(status.ok()) << status.message();
    rank.barrier();
  });
}

TEST(Shm, LongMessageOfAnotherSizeFailsAndTheLinkGoesOn) {
  run_ranks(2, [](Rank& rank) {
    const auto mesh = open(rank);
    ASSERT_NE(mesh, nullptr);
    const auto sent = pattern(9 << 20, 1);
    std::vector<std::byte> got(sent.size());
    Request one;
    Request two;
    if (rank.rank() == 0) {
      mesh->send(one, 1, 0, sent);
      mesh->send(two, 1, 0, sent);
      ASSERT_TRUE(wait_all(*mesh, {&one, &two}).ok());
    } else {
      mesh->recv(one, 0, 0, std::span(got).first(1000));
      mesh->recv(two, 0, 0, got);
      const Status status = wait_one(*mesh, one);
      EXPECT_EQ(status.code(), Code::kPara);
      EXPECT_NE(status.message().find("1000"), std::string::npos) << status.message();
      EXPECT_NE(status.message().find(std::to_string(sent.size())), std::string::npos);
      ASSERT_TRUE(wait_one(*mesh, two).ok());
      EXPECT_EQ(got, sent);
    }
    rank.barrier();
  });
}

TEST(Shm, ARankThatLeavesIsNamedOnceItsMessagesAreRead) {
  run_ranks(3, [](Rank& rank) {
    auto mesh = open(rank);
    ASSERT_NE(mesh, nullptr);
    const auto sent = pattern(5000, 1);
    if (rank.rank() == 2) {
      Request request;
      for (int peer : {0, 1}) {
        mesh->send(request, peer, 4, sent);
        ASSERT_TRUE(wait_one(*mesh, request).ok());
      }
      rank.barrier();  // rank 0 has posted its requests, rank 1 has not
      mesh.reset();
      rank.barrier();
      return;
    }
    std::vector<std::byte> got(sent.size());
    std::vector<std::byte> more(5000);
    Request first;
    Request second;
    Request send;
    if (rank.rank() == 0) {
      mesh->recv(first, 2, 4, got);
      mesh->recv(second, 2, 4, more);
    }
    rank.barrier();
    rank.barrier();
    if (rank.rank() == 1) {
      mesh->recv(first, 2, 4, got);
      mesh->recv(second, 2, 4, more);
    }
    EXPECT_TRUE(wait_one(*mesh, first).ok());
    EXPECT_EQ(got, sent);
    Status status = wait_one(*mesh, second);
    EXPECT_EQ(status.code(), Code::kRemote);
    EXPECT_EQ(status.culprit(), 2);
    EXPECT_NE(status.message().find("rank 2 left"), std::string::npos) << status.message();
    mesh->send(send, 2, 0, sent);
    status = wait_one(*mesh, send);
    EXPECT_EQ(status.code(), Code::kRemote);
    // The other ranks go on.
    const int peer = 1 - rank.rank();
    mesh->send(send, peer, 0, sent);
    mesh->recv(first, peer, 0, more);
    EXPECT_TRUE(wait_all(*mesh, {&send, &first}).ok());
  });
}

TEST(Shm, AbortByAnotherThreadEndsASleep) {
  run_ranks(2, [](Rank& rank) {
    const auto mesh = open(rank);
    ASSERT_NE(mesh, nullptr);
    std::vector<std::byte> bytes(100'000);
    Request receive;
    Request send;
    mesh->recv(receive, 1 - rank.rank(), 0, bytes);
    mesh->send(send, 1 - rank.rank(), 1, bytes);  // no receive is posted for it
    std::jthread other([&mesh] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      mesh->abort(Status(Code::kRemote, "rank 7 died", 7));
    });
    EXPECT_TRUE(sleep_until_done(*mesh, receive));
    EXPECT_TRUE(send.done());
    EXPECT_EQ(receive.status().culprit(), 7);
    EXPECT_EQ(send.status().message(), "rank 7 died");
    Request late;
    mesh->recv(late, 1 - rank.rank(), 0, bytes);
    ASSERT_TRUE(late.done());
    EXPECT_EQ(late.status().culprit(), 7);
    rank.barrier();
  });
}

TEST(Shm, RanksOfSeveralHostsAreRefusedByAll) {
  run_ranks(3, [](Rank& rank) {
    OpenArgs args = rank.open_args(Deadline::after(seconds(30)));
    args.hosts = {4, 4, 5};
    const auto mesh = open_shm(args);
    ASSERT_FALSE(mesh.ok());
    EXPECT_EQ(mesh.status().code(), Code::kNotSupport);
    EXPECT_NE(mesh.status().message().find("rank 2"), std::string::npos);
  });
}

TEST(Shm, RankWithAnotherKeyFailsAllOfThemSoon) {
  run_ranks(3, [](Rank& rank) {
    OpenArgs args = rank.open_args(Deadline::after(seconds(60)));
    if (rank.rank() == 1) args.key[5] ^= 1;
    const auto mesh = open_shm(args);
    ASSERT_FALSE(mesh.ok());
    EXPECT_FALSE(args.deadline.expired());
  });
}

// A stranger with the same user id connects to the socket while the ranks meet, and writes
// nonsense.
TEST(Shm, StrangerAtTheSocketIsIgnored) {
  const testing::Folder folder;
  Config config;
  config.meeting_places = {folder.path()};
  std::atomic<int> strangers{0};
  run_ranks(3, [&](Rank& rank) {
    OpenArgs args = rank.open_args(Deadline::after(seconds(30)));
    args.config = &config;
    Fd stranger;
    const BootstrapExchange inner = args.exchange;
    args.exchange = [&](std::string mine, Deadline deadline) {
      if (rank.rank() == 0 && !stranger.valid()) {  // the listener is there, nobody has connected
        for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
          auto connected = entry.is_socket() ? connect_unix(entry.path(), deadline)
                                             : Result<Fd>(Status(Code::kNotFound, ""));
          if (!connected.ok()) continue;
          stranger = std::move(connected).value();
          EXPECT_TRUE(send_all(stranger.get(), std::string(500, 'x'), deadline).ok());
          ++strangers;
        }
      }
      return inner(std::move(mine), deadline);
    };
    const auto mesh = open_shm(args);
    ASSERT_TRUE(mesh.ok()) << mesh.status().message();
  });
  EXPECT_EQ(strangers, 1);
  EXPECT_TRUE(std::filesystem::is_empty(folder / folder.files().at(0)));
}

TEST(Shm, ManyRanksOfOneProcessFitInto1024Descriptors) {
  constexpr int kRanks = 64;
  run_ranks(kRanks, [](Rank& rank) {
    const auto mesh = open(rank);
    ASSERT_NE(mesh, nullptr);
    std::vector<Request> requests(2 * kRanks);
    std::vector<int> values(2 * kRanks);
    std::vector<Request*> all;
    for (int peer = 0; peer < kRanks; ++peer) {
      const auto p = static_cast<std::size_t>(peer);
      values[p] = 1000 * rank.rank() + peer;
      mesh->send(requests[p], peer, 0, std::as_bytes(std::span(&values[p], 1)));
      mesh->recv(requests[kRanks + p], peer, 0,
                 std::as_writable_bytes(std::span(&values[kRanks + p], 1)));
      all.insert(all.end(), {&requests[p], &requests[kRanks + p]});
    }
    const Status status = wait_all(*mesh, all);
    ASSERT_TRUE(status.ok()) << status.message();
    for (int peer = 0; peer < kRanks; ++peer) {
      EXPECT_EQ(values[static_cast<std::size_t>(kRanks + peer)], 1000 * peer + rank.rank());
    }
    rank.barrier();
  });
}

// Threads must use the same addresses, or the thread sanitizer cannot follow the data that they
// share.
TEST(Shm, RanksOfOneProcessShareOneMapping) {
  run_ranks(4, [](Rank& rank) {
    const auto mesh = open(rank);
    ASSERT_NE(mesh, nullptr);
    rank.barrier();
    if (rank.rank() == 0) {
      std::ifstream maps("/proc/self/maps");
      int found = 0;
      for (std::string line; std::getline(maps, line);) {
        if (line.find("memfd:hccl-shm") != std::string::npos) ++found;
      }
      EXPECT_EQ(found, 1);
    }
    rank.barrier();
  });
}

}  // namespace
}  // namespace hccl::transport
