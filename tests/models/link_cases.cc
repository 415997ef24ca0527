// Links of the shm transport over their rings.
#include <cstring>

#include "hccl/base/waiter.h"
#include "tests/models/cases.h"
#include "transport/shm/link.cc"  // the templates' bodies. NOLINT(bugprone-suspicious-include)
#include "transport/shm/sleeper.h"

namespace hccl::model {
namespace {

using Link = transport::shm::BasicLink<ModelAtomics>;
using RankState = transport::shm::BasicRankState<ModelAtomics>;
using RingControl = transport::shm::BasicRingControl<ModelAtomics>;
using RingReader = transport::shm::BasicRingReader<ModelAtomics>;
using RingWriter = transport::shm::BasicRingWriter<ModelAtomics>;
using transport::Request;
using transport::shm::RingBytes;

// The smallest ring that the transport makes: eager messages have at most 1 KiB, and three of them
// may wait for their receives; pieces have 2 KiB, and a burst is two pieces.
constexpr std::uint64_t kRing = std::uint64_t{16} << 10;

/// The segment of these ranks.
struct Host {
  explicit Host(int number) : ranks(static_cast<std::size_t>(number)) {
    states = ranks * sizeof(RankState);
    controls = ranks * ranks * sizeof(RingControl);
    base = shared_memory(states + controls + ranks * ranks * kRing, states + controls);
  }
  RankState* state(int rank) const { return reinterpret_cast<RankState*>(base) + rank; }
  RingControl* control(int from, int to) const {
    return reinterpret_cast<RingControl*>(base + states) + pair(from, to);
  }
  RingBytes ring(int from, int to) const {
    return {base + states + controls + pair(from, to) * kRing, kRing};
  }
  std::size_t pair(int from, int to) const {
    return static_cast<std::size_t>(to) * ranks + static_cast<std::size_t>(from);
  }
  std::size_t ranks, states = 0, controls = 0;
  std::byte* base = nullptr;
};

class Eventfd final : public PolledSleeper {
 public:
  explicit Eventfd(int fd) : fd_(fd) {}
  int epoll() const override { return fd_; }
  std::uint32_t prepare() override { return 0; }
  void sleep(std::uint32_t, std::chrono::nanoseconds) override { await_notified(fd_); }
  void awake() override { forget_notified(fd_); }

 private:
  int fd_;
};

/// A rank with a link to each peer, like ShmMesh.
class Rank {
 public:
  Rank(const Host& host, int rank) : eventfd_(rank), sleeper_(eventfd_, host.state(rank)) {
    for (int peer = 0; peer < static_cast<int>(host.ranks); ++peer) {
      links_.emplace_back();
      if (peer == rank) continue;
      links_.back() = std::make_unique<Link>(
          rank, peer, RingWriter(host.control(rank, peer), host.ring(rank, peer)),
          RingReader(host.control(peer, rank), host.ring(peer, rank)), host.state(peer), peer);
    }
  }
  ~Rank() = default;
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void send(Request& request, int peer, std::uint32_t lane, std::vector<std::byte>& bytes) {
    request.begin(peer, lane, bytes.data(), bytes.size());
    link(peer).send(request);
  }
  void recv(Request& request, int peer, std::uint32_t lane, std::vector<std::byte>& bytes) {
    request.begin(peer, lane, bytes.data(), bytes.size());
    link(peer).recv(request);
  }
  void wait(const Request& request) {
    const BasicWaiter<ModelAtomics> waiter{.policy = kSleeps};
    // Sleeps only when nothing moves, like Executor::drive().
    const auto ready = [&] {
      while (!request.done() && progress()) {
      }
      return request.done();
    };
    check(waiter.until(ready, sleeper_) == Waited::kReady, "a wait that was not aborted ends so");
  }
  bool progress() {
    bool moved = false;
    for (auto& link : links_) moved |= link != nullptr && link->progress();
    return moved;
  }
  Link& link(int peer) { return *links_[static_cast<std::size_t>(peer)]; }

 private:
  Eventfd eventfd_;
  transport::shm::BasicRankSleeper<ModelAtomics> sleeper_;
  std::vector<std::unique_ptr<Link>> links_;
};

std::vector<std::byte> message(std::size_t bytes, int seed) {
  std::vector<std::byte> made(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    made[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(seed));
  }
  return made;
}

using Body = std::function<void(Rank&, int)>;

Case of(std::string name, int ranks, Bounds bounds, const Body& body) {
  return {std::move(name),
          [=](World& world) {
            const Host host(ranks);
            world.share(host.base, host.states + host.controls + host.ranks * host.ranks * kRing);
            for (int rank = 0; rank < ranks; ++rank) {
              world.thread(rank, "rank " + std::to_string(rank), [=] {
                Rank self(host, rank);
                body(self, rank);
              });
            }
          },
          bounds};
}

void send_all(Rank& self, int peer, const std::vector<std::size_t>& sizes) {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<Request> requests(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    bytes.push_back(message(sizes[i], static_cast<int>(i)));
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) self.send(requests[i], peer, 0, bytes[i]);
  for (const Request& request : requests) {
    self.wait(request);
    check(request.status().ok(), "a send failed");
  }
}

void recv_all(Rank& self, int peer, const std::vector<std::size_t>& sizes) {
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    std::vector<std::byte> bytes(sizes[i]);
    Request request;
    self.recv(request, peer, 0, bytes);
    self.wait(request);
    check(request.status().ok(), "a receive failed");
    check(bytes == message(sizes[i], static_cast<int>(i)), "a message arrived with other bytes");
  }
}

Case one_way(std::string name, const std::vector<std::size_t>& sizes, Bounds bounds) {
  return of(std::move(name), 2, bounds, [=](Rank& self, int rank) {
    rank == 0 ? send_all(self, 1, sizes) : recv_all(self, 0, sizes);
  });
}

}  // namespace

std::vector<Case> link_cases(int ranks) {
  std::vector<Case> cases;
  if (ranks == 2) {
    // The data is in the header's line, in a separate line, staged, or written directly into the
    // receive.
    cases.push_back(one_way("short messages", {16, 100}, {}));
    // The first three may be sent before their receives are posted.
    cases.push_back(
        one_way("more short messages than credit", {1024, 1024, 1024, 1024}, {.stale = 1}));
    cases.push_back(
        one_way("a message longer than the ring", {20000}, {.preemptions = 1, .stale = 1}));
    cases.push_back(of("an exchange", 2, {.preemptions = 1, .stale = 1}, [](Rank& self, int rank) {
      std::vector<std::byte> out = message(6000, rank), in(6000);
      Request send, recv;
      self.recv(recv, 1 - rank, 3, in);
      self.send(send, 1 - rank, 3, out);
      self.wait(recv);
      self.wait(send);
      check(in == message(6000, 1 - rank), "a message arrived with other bytes");
    }));
    cases.push_back(of("a rank that leaves", 2, {}, [](Rank& self, int rank) {
      std::vector<std::byte> bytes = message(8, 0), in(8), never(8);
      Request first, second;
      if (rank == 0) {
        self.send(first, 1, 0, bytes);
        self.wait(first);
        self.link(1).close();
        return;
      }
      self.recv(first, 0, 0, in);
      self.recv(second, 0, 0, never);
      self.wait(first);
      check(first.status().ok() && in == bytes, "what was sent before leaving did not arrive");
      self.wait(second);
      check(second.status().code() == Code::kRemote, "it was not told that the peer has left");
    }));
  } else {
    cases.push_back(of("two senders to one rank", 3, {.stale = 1}, [](Rank& self, int rank) {
      std::vector<std::byte> bytes = message(20, rank);
      if (rank != 0) {
        Request request;
        self.send(request, 0, 0, bytes);
        return self.wait(request);
      }
      for (const int peer : {1, 2}) {
        Request request;
        std::vector<std::byte> in(20);
        self.recv(request, peer, 0, in);
        self.wait(request);
        check(in == message(20, peer), "a message arrived with other bytes");
      }
    }));
  }
  return cases;
}

}  // namespace hccl::model
