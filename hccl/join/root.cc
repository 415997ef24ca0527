#include "hccl/join/root.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "hccl/base/socket.h"

namespace hccl::join {
namespace {

// Connections without a proof. The process needs most of its descriptors for other uses.
std::size_t strangers_cap() {
  constexpr rlim_t kMost = 1024;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMost;
  return std::clamp<rlim_t>(limit.rlim_cur / 4, 1, kMost);
}

Result<Listener> listen(RootInfo& info) {
  Result<Listener> listener(Status(Code::kUnavail, "no port"));
  for (int i = 0; i < info.ports; ++i) {
    const auto port = static_cast<std::uint16_t>(info.port == 0 ? 0 : info.port + i);
    listener = listen_tcp(info.address, port);
    if (listener.ok() || listener.status().code() != Code::kUnavail) break;
  }
  return listener;
}

}  // namespace

Result<std::shared_ptr<Root>> Root::start(std::shared_ptr<Control> control, RootInfo& info,
                                          const Config& config, Logger log,
                                          control::Claimants claimants, Result<std::string> boot) {
  HCCL_RETURN_IF_ERROR(boot.status());
  HCCL_ASSIGN_OR_RETURN(Listener listener, listen(info));
  info.port = listener.port;
  info.ports = 1;
  HCCL_ASSIGN_OR_RETURN(auto context, TlsContext::create());
  HCCL_ASSIGN_OR_RETURN(Fd spare, Lines::open_spare());
  std::shared_ptr<Root> root(new Root(std::move(control), info.id, config.connect_timeout));
  HCCL_ASSIGN_OR_RETURN(root->node_, root->control_->add([&](int epoll, std::uint64_t tags) {
    ControlNode::Args args{.own = own_part(info.address, info.port, {}, *boot),
                           .patience = config.connect_timeout,
                           .peer_timeout = config.peer_timeout,
                           .claimants = std::move(claimants)};
    auto lines = std::make_unique<Lines>(info, std::move(listener), std::move(context), epoll, tags,
                                         std::move(log), std::move(spare), strangers_cap());
    return std::make_unique<ControlNode>(std::move(args), std::move(lines), *root);
  }));
  return root;
}

Root::~Root() {
  if (node_ != 0 && !taken_.load(std::memory_order_acquire)) control_->remove(node_);
}

std::optional<Control::NodeId> Root::take() {
  return taken_.exchange(true) ? std::nullopt : std::optional(node_);
}

bool Root::finished() const {
  return taken_.load(std::memory_order_acquire) ||
         std::chrono::steady_clock::now() >= over_at_.load(std::memory_order_acquire);
}

void Root::joined(const std::shared_ptr<const control::Roster>& roster) {
  others_ = control::RankSet::range(1, static_cast<std::uint32_t>(roster->nodes.size()));
}

void Root::failed(const Status&) { over_at_ = std::chrono::steady_clock::now() + patience_; }

void Root::heard(const control::News& news) {
  others_ -= news.dead | news.left;
  if (others_.empty()) over_at_ = control::Time{};
}

void Root::give_up(const Status& why) {
  control_->post(node_, [why](ControlNode& node) {
    if (!node.is_in()) node.give_up(why);
  });
}

}  // namespace hccl::join
