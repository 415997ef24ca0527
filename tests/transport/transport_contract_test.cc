// The promises of every transport (transport/transport.h), as cases that run unchanged over all
// transports. Ranks are threads in transport_contract_test, and processes in
// transport_contract_mpi_test.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <random>
#include <set>
#include <thread>

#include "tests/support/ranks.h"
#include "transport/registry.h"

namespace hccl::transport {
namespace {

using testing::pattern;
using testing::Rank;
using testing::run_ranks;
using testing::wait_all;
using testing::wait_one;
using namespace std::chrono_literals;

constexpr std::size_t kMiB = 1 << 20;
using Bytes = std::vector<std::byte>;

struct Case {
  std::string transport;
  int ranks;
  Wire wire = Wire::kAuto;

  std::string name() const {
    const std::string word = wire == Wire::kCrc ? "_crc" : wire == Wire::kTls ? "_tls" : "";
    return transport + word + "_" + std::to_string(ranks) + "ranks";
  }
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name(); }

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Backend& backend : backends()) {
    for (const int ranks : testing::possible_sizes()) {
      all.push_back({std::string(backend.name), ranks});
    }
  }
  return all;
}

/// The same cases with each protection of data, and with few and with many links.
std::vector<Case> data_cases() {
  std::vector<Case> all = cases();
  const auto sizes = testing::possible_sizes();
  for (const Wire wire : {Wire::kCrc, Wire::kTls}) {
    for (const int ranks : std::set<int>{sizes.front(), sizes.back()}) {
      all.push_back({"tcp", ranks, wire});
    }
  }
  return all;
}

class TransportContract : public ::testing::TestWithParam<Case> {
 protected:
  /// Runs `body` on every rank with an open mesh; closes the meshes when all ranks have finished.
  static void with_meshes(const std::function<void(Rank&, Mesh&)>& body) {
    run_ranks(GetParam().ranks, [&](Rank& rank) {
      auto mesh = rank.open(GetParam().transport, GetParam().wire);
      ASSERT_TRUE(mesh.ok()) << "rank " << rank.rank() << ": " << mesh.status().message();
      body(rank, **mesh);
      rank.barrier();
    });
  }
};

/// Tests that depend on how the data is carried.
class TransportData : public TransportContract {};

/// The bytes of message `number` from `from` to `to` on a lane. No two messages of a test are
/// equal.
Bytes message(int from, int to, std::uint32_t lane, std::uint64_t number, std::size_t size) {
  return pattern(size, (number * 256 + lane) * 4096 + static_cast<std::uint64_t>(from * 64 + to));
}

/// Stores requests and their bytes until they are done.
struct Traffic {
  struct Item {
    Request request;
    Bytes bytes;
    Bytes expected;  ///< of receives
  };
  std::deque<Item> items;

  void send(Mesh& mesh, int peer, std::uint32_t lane, Bytes bytes) {
    Item& item = items.emplace_back();
    item.bytes = std::move(bytes);
    mesh.send(item.request, peer, lane, item.bytes);
  }
  void recv(Mesh& mesh, int peer, std::uint32_t lane, Bytes expected) {
    Item& item = items.emplace_back();
    item.expected = std::move(expected);
    item.bytes.resize(item.expected.size(), std::byte{0xEE});
    mesh.recv(item.request, peer, lane, item.bytes);
  }
  /// Waits for all requests, and checks the received bytes.
  void finish(Mesh& mesh) {
    std::vector<Request*> requests;
    for (Item& item : items) requests.push_back(&item.request);
    const Status status = wait_all(mesh, requests);
    EXPECT_TRUE(status.ok()) << "rank " << mesh.rank() << ": " << status.message();
    for (const Item& item : items) {
      if (!item.expected.empty()) {
        // The sizes are equal. Unlike ==, memcmp has no loop whose loads the sanitizers would
        // follow.
        EXPECT_EQ(std::memcmp(item.bytes.data(), item.expected.data(), item.bytes.size()), 0)
            << "rank " << mesh.rank() << " got wrong bytes from rank " << item.request.peer_
            << " on lane " << item.request.lane_;
      }
      // A pending request must not be destroyed: it is better to stop here than to crash later.
      ASSERT_TRUE(item.request.done());
    }
    items.clear();
  }
};

TEST_P(TransportContract, KnowsItsNameRankAndSize) {
  with_meshes([](Rank& rank, Mesh& mesh) {
    EXPECT_EQ(mesh.name(), GetParam().transport);
    EXPECT_EQ(mesh.rank(), rank.rank());
    EXPECT_EQ(mesh.size(), rank.size());
  });
}

TEST_P(TransportData, CarriesMessagesOfAllSizesAroundTheRing) {
  with_meshes([](Rank& rank, Mesh& mesh) {
    const int n = rank.size();
    const int me = rank.rank();
    const int right = (me + 1) % n;
    const int left = (me + n - 1) % n;
    std::uint64_t number = 0;
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{13}, std::size_t{4095}, std::size_t{4096},
          std::size_t{4097}, std::size_t{65535}, std::size_t{65536}, std::size_t{65537}, kMiB,
          8 * kMiB + 3}) {
      Traffic traffic;
      traffic.send(mesh, right, 0, message(me, right, 0, number, size));
      traffic.recv(mesh, left, 0, message(left, me, 0, number, size));
      traffic.finish(mesh);
      ++number;
    }
  });
}

TEST_P(TransportData, PlaysPingPongWithTheSameRequests) {
  with_meshes([](Rank& rank, Mesh& mesh) {
    if (rank.rank() > 1) return;
    const int peer = 1 - rank.rank();
    Request request;
    for (std::uint64_t i = 0; i < 500; ++i) {
      const std::size_t size = i % 50 == 0 ? kMiB / 2 : i;
      Bytes bytes = message(0, 1, 3, i, size);
      if (rank.rank() == 0) {
        mesh.send(request, peer, 3, bytes);
        ASSERT_TRUE(wait_one(mesh, request).ok());
      }
      Bytes got(size);
      mesh.recv(request, peer, 3, got);
      const Status status = wait_one(mesh, request);
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_TRUE(got == bytes) << "message " << i;
      if (rank.rank() == 1) {
        mesh.send(request, peer, 3, got);
        ASSERT_TRUE(wait_one(mesh, request).ok());
      }
    }
  });
}

TEST_P(TransportData, KeepsTheOrderOfALane) {
  with_meshes([](Rank& rank, Mesh& mesh) {
    const int n = rank.size();
    const int right = (rank.rank() + 1) % n;
    const int left = (rank.rank() + n - 1) % n;
    const auto size = [](std::uint64_t i) {
      return i % 7 == 0 ? 100'000 + i : i % 5 == 0 ? 0 : 10 * i;
    };
    Traffic traffic;
    for (std::uint64_t i = 0; i < 60; ++i) {
      for (const std::uint32_t lane : {0u, 1u, 255u}) {
        traffic.send(mesh, right, lane, message(rank.rank(), right, lane, i, size(i)));
      }
    }
    // Receives lane after lane, in another order than that of the sends.
    for (const std::uint32_t lane : {255u, 0u, 1u}) {
      for (std::uint64_t i = 0; i < 60; ++i) {
        traffic.recv(mesh, left, lane, message(left, rank.rank(), lane, i, size(i)));
      }
    }
    traffic.finish(mesh);
  });
}

TEST_P(TransportContract, ALaneDoesNotWaitForAnother) {
  with_meshes([](Rank& rank, Mesh& mesh) {
    if (rank.rank() > 1) return;
    struct Load {
      std::uint64_t messages;
      std::size_t size;
    };
    // One small message, a few large ones, and more small ones than any transport buffers.
    for (const Load load : {Load{1, 100}, Load{3, 4 * kMiB}, Load{3000, 4096}}) {
      for (const std::size_t size : {std::size_t{64}, 2 * kMiB}) {
        Traffic held;
        Traffic quick;
        if (rank.rank() == 0) {
          for (std::uint64_t i = 0; i < load.messages; ++i) {
            held.send(mesh, 1, 0, message(0, 1, 0, i, load.size));
          }
          quick.send(mesh, 1, 1, message(0, 1, 1, 0, size));
        } else {
          quick.recv(mesh, 0, 1, message(0, 1, 1, 0, size));
          quick.finish(mesh);  // lane 0 has no receive yet
          for (std::uint64_t i = 0; i < load.messages; ++i) {
            held.recv(mesh, 0, 0, message(0, 1, 0, i, load.size));
          }
        }
        quick.finish(mesh);
        held.finish(mesh);
      }
    }
  });
}

TEST_P(TransportData, AllToAllWithEverySendPostedFirst) {
  with_meshes([](Rank& rank, Mesh& mesh) {
    Traffic traffic;
    const int me = rank.rank();
    for (std::uint64_t i = 0; i < 2; ++i) {
      for (int peer = 0; peer < rank.size(); ++peer) {
        traffic.send(mesh, peer, 0, message(me, peer, 0, i, 2 * kMiB + 5));
      }
    }
    for (std::uint64_t i = 0; i < 2; ++i) {
      for (int peer = 0; peer < rank.size(); ++peer) {
        traffic.recv(mesh, peer, 0, message(peer, me, 0, i, 2 * kMiB + 5));
      }
    }
    traffic.finish(mesh);
  });
}

TEST_P(TransportData, FloodsOfSmallMessagesInBothDirections) {
  with_meshes([](Rank& rank, Mesh& mesh) {
    const int me = rank.rank();
    const int peer = me ^ 1;
    if (peer >= rank.size()) return;
    constexpr std::uint64_t kMessages = 3000;
    Traffic traffic;
    for (std::uint64_t i = 0; i < kMessages; ++i) {
      traffic.send(mesh, peer, i % 4, message(me, peer, i % 4, i, i % 1500));
    }
    for (std::uint64_t i = 0; i < kMessages; ++i) {
      traffic.recv(mesh, peer, i % 4, message(peer, me, i % 4, i, i % 1500));
    }
    traffic.finish(mesh);
  });
}

TEST_P(TransportContract, CarriesMessagesToItself) {
  with_meshes([](Rank& rank, Mesh& mesh) {
    const int me = rank.rank();
    for (const std::size_t size : {std::size_t{0}, std::size_t{7}, 3 * kMiB}) {
      Traffic traffic;
      traffic.send(mesh, me, 2, message(me, me, 2, 0, size));
      traffic.recv(mesh, me, 9, message(me, me, 9, 0, size));
      traffic.recv(mesh, me, 2, message(me, me, 2, 0, size));
      traffic.send(mesh, me, 9, message(me, me, 9, 0, size));
      traffic.finish(mesh);
    }
  });
}

TEST_P(TransportData, AnotherSizeIsAnErrorThatNamesBoth) {
  with_meshes([](Rank& rank, Mesh& mesh) {
    if (rank.rank() > 1) return;
    struct Sizes {
      std::size_t posted;
      std::size_t sent;
    };
    constexpr std::size_t kLarge = kMiB + 1;
    // Each case sends to the peer, and then to the rank itself.
    for (const Sizes sizes : {Sizes{10, 20}, Sizes{20, 10}, Sizes{11, kLarge}, Sizes{kLarge, 12},
                              Sizes{kLarge, 2 * kMiB}, Sizes{2 * kMiB, kLarge}, Sizes{0, 17},
                              Sizes{18, 0}, Sizes{0, kLarge}}) {
      for (const bool late : {false, true}) {
        SCOPED_TRACE("posted " + std::to_string(sizes.posted) + ", sent " +
                     std::to_string(sizes.sent) + (late ? ", the send first" : ""));
        Bytes out(sizes.sent);
        Bytes in(sizes.posted);
        Request request;
        Traffic after;
        if (rank.rank() == 0) {
          if (!late) std::this_thread::sleep_for(5ms);
          mesh.send(request, 1, 4, out);
          after.send(mesh, 1, 4, message(0, 1, 4, 1, 1000));
          after.finish(mesh);
          ASSERT_NE(wait_one(mesh, request).code(), Code::kTimeout);
        } else {
          if (late) std::this_thread::sleep_for(5ms);
          mesh.recv(request, 0, 4, in);
          const Status status = wait_one(mesh, request);
          EXPECT_EQ(status.code(), Code::kPara) << status.message();
          EXPECT_NE(status.message().find(std::to_string(sizes.posted)), std::string::npos)
              << status.message();
          EXPECT_NE(status.message().find(std::to_string(sizes.sent)), std::string::npos)
              << status.message();
          after.recv(mesh, 0, 4, message(0, 1, 4, 1, 1000));
          after.finish(mesh);
        }
      }
      Bytes out(sizes.sent);
      Bytes in(sizes.posted);
      Request send;
      Request recv;
      mesh.send(send, rank.rank(), 4, out);
      mesh.recv(recv, rank.rank(), 4, in);
      EXPECT_EQ(wait_one(mesh, recv).code(), Code::kPara);
      ASSERT_NE(wait_one(mesh, send).code(), Code::kTimeout);
    }
  });
}

TEST_P(TransportContract, RefusesPeersAndLanesThatAreNot) {
  with_meshes([](Rank& rank, Mesh& mesh) {
    Bytes bytes(8);
    Request request;
    for (const int peer : {-1, rank.size(), 1 << 30}) {
      mesh.send(request, peer, 0, bytes);
      EXPECT_EQ(wait_one(mesh, request).code(), Code::kPara);
      mesh.recv(request, peer, 0, bytes);
      EXPECT_EQ(wait_one(mesh, request).code(), Code::kPara);
    }
    mesh.send(request, 0, Mesh::kLanes, bytes);
    EXPECT_EQ(wait_one(mesh, request).code(), Code::kPara);
    mesh.recv(request, 0, Mesh::kLanes, bytes);
    EXPECT_EQ(wait_one(mesh, request).code(), Code::kPara);
  });
}

TEST_P(TransportContract, AbortWakesASleeperAndFailsWhatComesLater) {
  with_meshes([&](Rank& rank, Mesh& mesh) {
    Bytes in(100);
    Bytes self(100);
    Bytes out(4 * kMiB);
    Request recv;
    Request from_self;
    Request send;
    const int peer = (rank.rank() + 1) % rank.size();
    mesh.recv(recv, peer, 0, in);
    mesh.recv(from_self, rank.rank(), 0, self);
    mesh.send(send, peer, 1, out);
    rank.barrier();
    std::jthread aborter([&] {
      std::this_thread::sleep_for(30ms);
      mesh.abort(Status(Code::kRemote, "the operator said stop", 1));
      mesh.abort(Status(Code::kInternal, "too late", 0));
    });
    // This wait needs a wake-up: nothing else ends its sleep in time.
    constexpr auto kForever = 60s;
    const auto begin = std::chrono::steady_clock::now();
    Sleeper& sleeper = mesh.sleeper();
    const auto all_done = [&] { return recv.done() && from_self.done() && send.done(); };
    while (!all_done()) {
      const std::uint32_t ticket = sleeper.prepare();
      mesh.progress();
      if (!all_done()) sleeper.sleep(ticket, kForever);
      sleeper.awake();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kForever);
    aborter.join();
    for (const Request* request : {&recv, &from_self, &send}) {
      EXPECT_FALSE(request->status().ok());
      // The peer may have aborted a moment earlier and closed the link. Then that is the reason.
      if (request->peer_ != rank.rank() && request->status().culprit() == peer) continue;
      EXPECT_EQ(request->status().message(), "the operator said stop");
      EXPECT_EQ(request->status().culprit(), 1);
    }
    Request later;
    mesh.send(later, peer, 0, in);
    EXPECT_FALSE(wait_one(mesh, later).ok());
    mesh.recv(later, peer, 0, in);
    EXPECT_EQ(wait_one(mesh, later).message(), "the operator said stop");
    mesh.recv(later, rank.rank(), 0, in);
    EXPECT_EQ(wait_one(mesh, later).message(), "the operator said stop");
  });
}

TEST_P(TransportData, AClosedPeerFailsItsRequestsOnly) {
  run_ranks(GetParam().ranks, [](Rank& rank) {
    auto opened = rank.open(GetParam().transport, GetParam().wire);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    std::unique_ptr<Mesh> mesh = std::move(*opened);
    const int leaver = rank.size() - 1;
    const int me = rank.rank();
    rank.barrier();
    if (me == leaver) {
      Traffic last_words;
      for (int peer = 0; peer < leaver; ++peer) {
        last_words.send(*mesh, peer, 0, message(me, peer, 0, 0, 5000));
      }
      last_words.finish(*mesh);
      mesh.reset();
      rank.barrier();
      return;
    }
    Bytes in(100);
    Bytes never(100);
    Request pending;
    Traffic traffic;
    traffic.recv(*mesh, leaver, 0, message(leaver, me, 0, 0, 5000));
    mesh->recv(pending, leaver, 0, never);
    traffic.finish(*mesh);
    const Status status = wait_one(*mesh, pending);
    EXPECT_EQ(status.code(), Code::kRemote) << status.message();
    EXPECT_EQ(status.culprit(), leaver);
    EXPECT_NE(status.message().find("rank " + std::to_string(leaver)), std::string::npos)
        << status.message();
    Request later;
    mesh->recv(later, leaver, 5, in);
    EXPECT_EQ(wait_one(*mesh, later).culprit(), leaver);
    mesh->send(later, leaver, 5, in);
    EXPECT_EQ(wait_one(*mesh, later).culprit(), leaver);
    // The other ranks go on.
    if (leaver >= 2) {
      const int right = (me + 1) % leaver;
      const int left = (me + leaver - 1) % leaver;
      for (const std::size_t size : {std::size_t{50}, kMiB}) {
        traffic.send(*mesh, right, 0, message(me, right, 0, 1, size));
        traffic.recv(*mesh, left, 0, message(left, me, 0, 1, size));
        traffic.finish(*mesh);
      }
    }
    rank.barrier();
  });
}

TEST_P(TransportData, WaitingCostsLittleCpu) {
  with_meshes([](Rank& rank, Mesh& mesh) {
    const auto cpu = [] {
      timespec now{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
      return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
    };
    const int peer = (rank.rank() + 1) % rank.size();
    Bytes in(10);
    Request request;
    mesh.recv(request, peer, 0, in);
    const auto before = cpu();
    EXPECT_EQ(wait_one(mesh, request, 500ms).code(), Code::kTimeout);
    EXPECT_LT(cpu() - before, 100ms);
    rank.barrier();
    mesh.abort(Status(Code::kSuspending, "end of the test"));
    mesh.progress();
    ASSERT_TRUE(request.done());
  });
}

TEST_P(TransportData, SurvivesRandomTraffic) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    with_meshes([&](Rank& rank, Mesh& mesh) {
      const int n = rank.size();
      const int me = rank.rank();
      constexpr std::uint32_t kLanesUsed = 4;
      const auto per_lane = static_cast<std::uint64_t>(80 / n);
      // Both ends of a message compute the same size.
      const auto size = [&](int from, int to, std::uint32_t lane, std::uint64_t i) {
        std::mt19937 random(seed * 1'000'003u + static_cast<unsigned>(from * 64 + to) * 1009u +
                            lane * 97u + static_cast<unsigned>(i));
        const unsigned kind = random() % 10;
        return std::size_t{random() % (kind < 6 ? 2000u : kind < 9 ? 70'000u : 600'000u)};
      };
      struct Stream {
        bool sends;
        int peer;
        std::uint32_t lane;
        std::uint64_t next;
      };
      std::vector<Stream> streams;
      for (int peer = 0; peer < n; ++peer) {
        for (std::uint32_t lane = 0; lane < kLanesUsed; ++lane) {
          streams.push_back({true, peer, lane, 0});
          streams.push_back({false, peer, lane, 0});
        }
      }
      std::mt19937 random(seed * 77 + static_cast<unsigned>(me));
      Traffic traffic;
      while (!streams.empty()) {
        const std::size_t pick = random() % streams.size();
        Stream& s = streams[pick];
        if (s.sends) {
          traffic.send(mesh, s.peer, s.lane,
                       message(me, s.peer, s.lane, s.next, size(me, s.peer, s.lane, s.next)));
        } else {
          traffic.recv(mesh, s.peer, s.lane,
                       message(s.peer, me, s.lane, s.next, size(s.peer, me, s.lane, s.next)));
        }
        if (++s.next == per_lane)
          streams.erase(streams.begin() + static_cast<std::ptrdiff_t>(pick));
        if (random() % 3 == 0) mesh.progress();
      }
      traffic.finish(mesh);
    });
  }
}

constexpr auto kName = [](const auto& info) { return info.param.name(); };
INSTANTIATE_TEST_SUITE_P(Transports, TransportContract, ::testing::ValuesIn(cases()), kName);
INSTANTIATE_TEST_SUITE_P(Transports, TransportData, ::testing::ValuesIn(data_cases()), kName);

}  // namespace
}  // namespace hccl::transport
