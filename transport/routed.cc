#include "transport/routed.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "hccl/base/log.h"
#include "hccl/base/socket.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"

namespace hccl::transport {
namespace {

/// Sleeps on both meshes at once: their epoll sets are nested in this sleeper's set.
class BothSleeper final : public Sleeper {
 public:
  static Result<std::unique_ptr<BothSleeper>> create(Mesh& one, Mesh& other) {
    HCCL_ASSIGN_OR_RETURN(std::unique_ptr<EpollSleeper> outer, EpollSleeper::create());
    std::unique_ptr<BothSleeper> both(new BothSleeper(one, other, std::move(outer)));
    for (Mesh* mesh : {&one, &other}) {
      const int inner = epoll_of(mesh->sleeper());
      if (inner < 0 || !watch_fd(both->outer_->epoll(), EPOLL_CTL_ADD, inner, EPOLLIN)) {
        return Status(Code::kInternal, "cannot sleep on the " + std::string(mesh->name()) +
                                           " transport together with another one");
      }
    }
    return both;
  }

  std::uint32_t prepare() override {
    look_at_all = true;
    one_.sleeper().prepare();
    other_.sleeper().prepare();
    return 0;
  }
  void sleep(std::uint32_t ticket, std::chrono::nanoseconds at_most) override {
    outer_->sleep(ticket, at_most);
  }
  void awake() override {
    one_.sleeper().awake();
    other_.sleeper().awake();
  }

  /// Set when a thread is about to sleep: progress() then reads all sockets, because an unread
  /// socket would end the sleep at once.
  bool look_at_all = true;

 private:
  BothSleeper(Mesh& one, Mesh& other, std::unique_ptr<EpollSleeper> outer)
      : one_(one), other_(other), outer_(std::move(outer)) {}

  static int epoll_of(Sleeper& sleeper) {
    const auto* polled = dynamic_cast<PolledSleeper*>(&sleeper);
    return polled == nullptr ? -1 : polled->epoll();
  }

  Mesh& one_;
  Mesh& other_;
  std::unique_ptr<EpollSleeper> outer_;
};

class RoutedMesh final : public Mesh {
 public:
  RoutedMesh(const std::vector<int>& hosts, std::unique_ptr<Mesh> near, std::unique_ptr<Mesh> far,
             std::unique_ptr<BothSleeper> sleeper)
      : near_(std::move(near)), far_(std::move(far)), sleeper_(std::move(sleeper)) {
    for (const int host : hosts) {
      is_near_.push_back(host == hosts[static_cast<std::size_t>(near_->rank())]);
    }
  }

  std::string_view name() const override { return "auto"; }
  int rank() const override { return near_->rank(); }
  int size() const override { return near_->size(); }
  Sleeper& sleeper() override { return *sleeper_; }

  void send(Request& request, int peer, std::uint32_t lane,
            std::span<const std::byte> bytes) override {
    if (is_near(peer)) return near_->send(request, peer, lane, bytes);
    far_->send(request, peer, lane, bytes);
    posted_far(request);
  }

  void recv(Request& request, int peer, std::uint32_t lane, std::span<std::byte> bytes) override {
    if (is_near(peer)) return near_->recv(request, peer, lane, bytes);
    far_->recv(request, peer, lane, bytes);
    posted_far(request);
  }

  void expect(int peer) override {
    if (!is_near(peer)) far_->expect(peer);
  }

  bool progress() override {
    bool moved = near_->progress();
    // Each look at the sockets costs a system call, as much as several messages through shared
    // memory. So the sockets are read while requests wait for them and before a sleep, and seldom
    // otherwise.
    if (!far_requests_.empty() || sleeper_->look_at_all || ++skipped_ == kSeldom) {
      sleeper_->look_at_all = false;
      skipped_ = 0;
      moved |= far_->progress();
      settle();
    }
    return moved;
  }

  const HostMemory* host_memory() const override { return near_->host_memory(); }

  void abort(Status status) override {
    near_->abort(status);
    far_->abort(std::move(status));
  }

 private:
  static constexpr int kSeldom = 64;

  bool is_near(int peer) const {
    return static_cast<std::size_t>(peer) < is_near_.size() &&
           is_near_[static_cast<std::size_t>(peer)];
  }

  void posted_far(Request& request) {
    sleeper_->look_at_all = true;
    settle();
    if (!request.done()) far_requests_.push_back(&request);
  }

  // Forgets completed requests. Runs after every call that may complete requests, because their
  // owners may then destroy them.
  void settle() {
    std::erase_if(far_requests_, [](const Request* request) { return request->done(); });
  }

  std::unique_ptr<Mesh> near_;
  std::unique_ptr<Mesh> far_;
  std::unique_ptr<BothSleeper> sleeper_;
  std::vector<bool> is_near_;
  std::vector<Request*> far_requests_;
  int skipped_ = 0;
};

}  // namespace

Result<std::unique_ptr<Mesh>> open_routed(const OpenArgs& args, const RouteParts& parts) {
  if (args.rank < 0 || args.rank >= args.size ||
      (!args.hosts.empty() && args.hosts.size() != static_cast<std::size_t>(args.size))) {
    return Status(Code::kPara, "auto: not every rank has a host number");
  }
  std::multiset<int> ranks(args.hosts.begin(), args.hosts.end());
  ranks.erase(OpenArgs::kAbsent);
  const std::set<int> hosts(ranks.begin(), ranks.end());
  const bool one_host = hosts.size() <= 1;
  if (!one_host && hosts.size() == ranks.size()) return parts.tcp(args);

  auto near = parts.shm(args);
  if (one_host && near.ok()) return near;
  if (args.abort != nullptr && args.abort->raised()) {
    // This rank's own failure, such as a lack of memory or descriptors, explains more than the end
    // of another rank.
    return near.ok() ? args.abort->reason() : near.status();
  }
  // No time is left for tcp, and the status names the ranks that did not come.
  if (near.status().code() == Code::kTimeout && args.deadline.expired()) return near.status();
  if (!near.ok()) {
    const auto first =
        std::find(args.hosts.begin(), args.hosts.end(),
                  args.hosts.empty() ? 0 : args.hosts[static_cast<std::size_t>(args.rank)]);
    if (parts.warn && args.rank == first - args.hosts.begin()) {
      parts.warn("the ranks of this host cannot share memory and use tcp, which is slower: " +
                 near.status().message());
    }
  }
  // The tcp mesh connects all ranks, also those of one host. So no rank needs to know on which
  // other hosts the ranks share memory.
  auto far = parts.tcp(args);
  if (!far.ok() || !near.ok()) return far;
  HCCL_ASSIGN_OR_RETURN(std::unique_ptr<BothSleeper> sleeper, BothSleeper::create(**near, **far));
  return std::unique_ptr<Mesh>(std::make_unique<RoutedMesh>(
      args.hosts, std::move(near).value(), std::move(far).value(), std::move(sleeper)));
}

Result<std::unique_ptr<Mesh>> open_routed(const OpenArgs& args) {
  const auto warn = [&args](std::string_view text) {
    const std::string level = args.config != nullptr ? args.config->log_level : "warn";
    make_logger(level, "rank " + std::to_string(args.rank))->warn("{}", text);
  };
  return open_routed(args, RouteParts{&open_shm_on_host, &open_tcp, warn});
}

}  // namespace hccl::transport
