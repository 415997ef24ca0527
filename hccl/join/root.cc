#include "hccl/join/root.h"

#include <utility>

#include "hccl/base/socket.h"

namespace hccl::join {
namespace {

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
                                          Result<std::string> boot) {
  HCCL_RETURN_IF_ERROR(boot.status());
  HCCL_ASSIGN_OR_RETURN(Listener listener, listen(info));
  info.port = listener.port;
  info.ports = 1;
  HCCL_ASSIGN_OR_RETURN(auto context, TlsContext::create());
  std::shared_ptr<Root> root(new Root(std::move(control), info.id));
  root->node_ = root->control_->add([&](int epoll, std::uint64_t tags) {
    ControlNode::Args args{.own = own_part(info.address, info.port, {}, *boot),
                           .patience = config.connect_timeout,
                           .peer_timeout = config.peer_timeout};
    auto lines = std::make_unique<Lines>(info, std::move(listener), std::move(context), epoll, tags,
                                         std::move(log));
    return std::make_unique<ControlNode>(std::move(args), std::move(lines), root->nobody_);
  });
  return root;
}

Root::~Root() {
  if (node_ != 0 && !taken()) control_->remove(node_);
}

std::optional<Control::NodeId> Root::take() {
  return taken_.exchange(true) ? std::nullopt : std::optional(node_);
}

void Root::give_up(const Status& why) {
  control_->post(node_, [why](ControlNode& node) {
    if (!node.is_in()) node.give_up(why);
  });
}

}  // namespace hccl::join
