// Reads tables of version 1.1, HCCL's table for host processes: node_list[].ranks[].
#include <set>

#include "hccl/join/rank_table_item.h"

namespace hccl::join {
namespace {

Result<RankEntry> read_rank(const TableItem& item, const std::string& node) {
  RankEntry entry;
  entry.server_id = node;
  HCCL_ASSIGN_OR_RETURN(const auto rank, item.number("rank_id", 0, kRankTableRanks - 1));
  entry.rank = static_cast<int>(rank);
  HCCL_ASSIGN_OR_RETURN(const auto device, item.optional_number("device_id", 0, kLastDevice));
  if (device.has_value()) entry.device = static_cast<int>(*device);
  HCCL_ASSIGN_OR_RETURN(const auto port, item.optional_number("port", 1, 65535));
  entry.port = static_cast<std::uint16_t>(port.value_or(0));
  HCCL_ASSIGN_OR_RETURN(entry.address, item.address("rank_ip"));
  if (entry.address.empty()) entry.address = node;
  return entry;
}

}  // namespace

Result<TableDraft> read_node_table(const TableItem& root) {
  HCCL_ASSIGN_OR_RETURN(const std::string id, root.name("collective_id", 0, 127));
  HCCL_ASSIGN_OR_RETURN(const auto mode, root.optional_text("mode"));
  if (mode.has_value() && *mode != "tcp" && *mode != "rdma") {
    return wrong_value(*mode, "mode", "tcp or rdma");
  }
  HCCL_ASSIGN_OR_RETURN(const auto nodes, root.list("node_list"));
  TableDraft draft;
  draft.extra = "collective " + id + "\n";
  std::set<std::string> seen;
  for (const TableItem& node : nodes) {
    HCCL_ASSIGN_OR_RETURN(const std::string given, node.text("node_addr"));
    HCCL_ASSIGN_OR_RETURN(const std::string address, node.address("node_addr"));
    if (address.empty() || !seen.insert(address).second) {
      return wrong_value(given, node.place("node_addr"),
                         "an IPv4 or IPv6 address that no other node has");
    }
    HCCL_ASSIGN_OR_RETURN(const auto ranks, node.list("ranks"));
    std::set<int> devices;
    std::set<std::pair<std::string, int>> ports;
    for (const TableItem& item : ranks) {
      HCCL_ASSIGN_OR_RETURN(RankEntry entry, read_rank(item, address));
      if (entry.device >= 0 && !devices.insert(entry.device).second) {
        return wrong_value(std::to_string(entry.device), item.place("device_id"),
                           "an id that no other rank of the node has");
      }
      if (entry.port != 0 && !ports.emplace(entry.address, entry.port).second) {
        return wrong_value(std::to_string(entry.port), item.place("port"),
                           "a port that no other rank of the node has");
      }
      HCCL_RETURN_IF_ERROR(add_rank(draft, std::move(entry), item));
    }
  }
  return draft;
}

}  // namespace hccl::join
