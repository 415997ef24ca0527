// Reads tables without a version key: group_list[].instance_list[].devices[]. With deploy_mode
// ("lab") an instance is one rank and names its number. Without deploy_mode ("cloud") an instance
// is a pod, and the table has no rank numbers: ranks are numbered by the name of the server, then
// by the id of the device.
#include <algorithm>
#include <set>
#include <tuple>

#include "hccl/join/rank_table_item.h"

namespace hccl::join {
namespace {

constexpr std::uint64_t kLastLegacyDevice = 7;

class LegacyReader {
 public:
  LegacyReader(bool lab, bool several) : lab_(lab), several_(several) {}

  Status read_group(const TableItem& group) {
    HCCL_ASSIGN_OR_RETURN(const std::string name, group.name("group_name", 0, 127));
    if (!groups_.insert(name).second) {
      return wrong_value(name, group.place("group_name"), "a name that no other group has");
    }
    HCCL_ASSIGN_OR_RETURN(const auto instances, group.list("instance_list"));
    HCCL_RETURN_IF_ERROR(
        group.count("instance_count", instances.size(), "instances in instance_list"));
    const std::size_t before = draft_.ranks.size();
    std::set<std::string> servers;
    for (const TableItem& instance : instances)
      HCCL_RETURN_IF_ERROR(read_instance(instance, servers));
    const std::size_t devices = draft_.ranks.size() - before;
    if (!lab_) return group.count("device_count", devices, "devices in the group");

    HCCL_RETURN_IF_ERROR(group.count("device_num", devices, "devices in the group"));
    HCCL_RETURN_IF_ERROR(group.count("server_num", servers.size(), "servers in the group"));
    constexpr std::size_t kSizes[] = {1, 2, 4, 8, 16};
    const std::size_t each = devices / servers.size();
    if (devices % servers.size() != 0 ||
        std::find(std::begin(kSizes), std::end(kSizes), each) == std::end(kSizes)) {
      return wrong_value(
          std::to_string(devices), group.place("device_num"),
          "1, 2, 4, 8 or 16 devices for each of " + std::to_string(servers.size()) + " servers");
    }
    return {};
  }

  TableDraft take() {
    if (!lab_) {
      std::sort(draft_.ranks.begin(), draft_.ranks.end(),
                [](const RankEntry& a, const RankEntry& b) {
                  return std::tie(a.server_id, a.device) < std::tie(b.server_id, b.device);
                });
      int next = 0;
      for (RankEntry& entry : draft_.ranks) entry.rank = next++;
    }
    return std::move(draft_);
  }

 private:
  Status read_instance(const TableItem& instance, std::set<std::string>& servers) {
    RankEntry entry;
    HCCL_ASSIGN_OR_RETURN(entry.server_id, instance.name("server_id", 1, 64));
    servers.insert(entry.server_id);
    HCCL_ASSIGN_OR_RETURN(const auto devices, instance.list("devices"));
    if (lab_) {
      HCCL_ASSIGN_OR_RETURN(const auto rank, instance.number("rank_id", 0, kRankTableRanks - 1));
      entry.rank = static_cast<int>(rank);
      if (devices.size() != 1) {
        return wrong_value(std::to_string(devices.size()) + " devices", instance.place("devices"),
                           "one device, as the instance is one rank");
      }
    } else {
      HCCL_ASSIGN_OR_RETURN(entry.pod, instance.name("pod_name", 1, 255));
      if (!pods_.insert(entry.pod).second) {
        return wrong_value(entry.pod, instance.place("pod_name"),
                           "a name that no other instance has");
      }
    }
    for (const TableItem& device : devices) HCCL_RETURN_IF_ERROR(read_device(device, entry));
    return {};
  }

  Status read_device(const TableItem& device, RankEntry entry) {
    HCCL_ASSIGN_OR_RETURN(const auto id, device.number("device_id", 0, kLastLegacyDevice));
    entry.device = static_cast<int>(id);
    if (!devices_.emplace(entry.server_id, entry.device).second) {
      return wrong_value(std::to_string(id), device.place("device_id"),
                         "an id that no other device of server " + entry.server_id + " has");
    }
    if (lab_ || several_) HCCL_RETURN_IF_ERROR(device.text("device_ip").status());
    HCCL_ASSIGN_OR_RETURN(const auto addresses, device.addresses("device_ip"));
    entry.address = canonical_address(entry.server_id).value_or("");
    entry.of_device = entry.address.empty();
    if (entry.of_device && !addresses.empty()) entry.address = addresses.front();
    if (lab_ && addresses.empty()) {
      return wrong_value("", device.place("device_ip"), "an IPv4 or IPv6 address");
    }
    for (const std::string& address : addresses) {
      if (!addresses_.insert(address).second) {
        return wrong_value(address, device.place("device_ip"),
                           "an address that no other device has");
      }
    }
    return add_rank(draft_, std::move(entry), device);
  }

  bool lab_;
  bool several_;  // there are several instances
  TableDraft draft_;
  std::set<std::string> groups_;
  std::set<std::string> pods_;
  std::set<std::string> addresses_;
  std::set<std::pair<std::string, int>> devices_;  // devices, with their servers
};

}  // namespace

Result<TableDraft> read_legacy_table(const TableItem& root) {
  HCCL_ASSIGN_OR_RETURN(const auto mode, root.optional_text("deploy_mode"));
  const bool lab = mode.has_value();
  if (lab) {
    HCCL_ASSIGN_OR_RETURN(const std::string location, root.text("para_plane_nic_location"));
    if (location != "device") return wrong_value(location, "para_plane_nic_location", "device");
  }
  HCCL_ASSIGN_OR_RETURN(const auto groups, root.list("group_list"));
  HCCL_RETURN_IF_ERROR(root.count("group_count", groups.size(), "groups in group_list"));
  std::size_t instances = 0;
  for (const TableItem& group : groups) {
    HCCL_ASSIGN_OR_RETURN(const auto list, group.list("instance_list"));
    instances += list.size();
  }
  LegacyReader reader(lab, instances > 1);
  for (const TableItem& group : groups) HCCL_RETURN_IF_ERROR(reader.read_group(group));
  return reader.take();
}

}  // namespace hccl::join
