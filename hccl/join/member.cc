#include "hccl/join/member.h"

namespace hccl::join {

std::vector<Member> members_of(const control::Roster& roster) {
  std::vector<Member> members;
  for (std::uint32_t rank = 0; rank < roster.node_of.size(); ++rank) {
    const control::Roster::Node& node = roster.nodes[roster.node_of[rank]];
    const control::Roster::Host& host = roster.hosts[node.host];
    members.push_back({.rank = rank,
                       .pid = node.pid,
                       .cores = host.cores,
                       .host = host.machine,
                       .address = host.addresses.front(),
                       .started = node.started});
  }
  return members;
}

}  // namespace hccl::join
