// Reads tables of versions 1.0 and 1.2: server_list[].device[], and in 1.2 super_pod_list[].
#include <map>
#include <set>

#include "hccl/join/rank_table_item.h"

namespace hccl::join {
namespace {

constexpr std::uint64_t kLastPort = 65535;

struct Device {
  int rank;
  int id;
  std::string host_ip;
  std::vector<std::string> ips;
  std::uint16_t host_port;
  std::uint16_t device_port;
  bool on_host;  // net_position
  std::optional<std::uint64_t> super_device;
  std::string place;
};

struct Server {
  std::string id;
  std::vector<Device> devices;
};

Result<std::uint16_t> port(const TableItem& item, std::string_view key) {
  HCCL_ASSIGN_OR_RETURN(const auto value, item.optional_number(key, 1, kLastPort));
  return static_cast<std::uint16_t>(value.value_or(0));
}

Result<Device> read_device(const TableItem& item, const std::string& host_ip, bool super_pods) {
  Device device;
  device.host_ip = host_ip;  // or a server_id that is an address
  device.place = item.place("");
  HCCL_ASSIGN_OR_RETURN(const auto id, item.number("device_id", 0, kLastDevice));
  HCCL_ASSIGN_OR_RETURN(const auto rank, item.number("rank_id", 0, kRankTableRanks - 1));
  device.id = static_cast<int>(id);
  device.rank = static_cast<int>(rank);
  HCCL_ASSIGN_OR_RETURN(device.ips, item.addresses("device_ip"));
  HCCL_RETURN_IF_ERROR(item.addresses("backup_device_ip").status());
  HCCL_ASSIGN_OR_RETURN(device.device_port, port(item, "device_port"));
  HCCL_ASSIGN_OR_RETURN(device.host_port, port(item, "host_port"));
  HCCL_RETURN_IF_ERROR(port(item, "device_vnic_port").status());
  HCCL_RETURN_IF_ERROR(port(item, "backup_device_port").status());
  HCCL_ASSIGN_OR_RETURN(const auto position, item.optional_text("net_position"));
  device.on_host = position == "host";
  HCCL_ASSIGN_OR_RETURN(const auto protocol, item.optional_text("net_protocol"));
  if (protocol.has_value() && *protocol != "rdma" && *protocol != "tcp") {
    return wrong_value(*protocol, item.place("net_protocol"), "rdma or tcp");
  }
  if (super_pods) {
    HCCL_ASSIGN_OR_RETURN(device.super_device,
                          item.optional_number("super_device_id", 0, 0xffffffff));
  }
  return device;
}

Result<Server> read_server(const TableItem& item, bool super_pods) {
  Server server;
  HCCL_ASSIGN_OR_RETURN(server.id, item.name("server_id", 1, 64));
  HCCL_ASSIGN_OR_RETURN(std::string host_ip, item.address("host_ip"));
  // A device_ip is an address of the device's own network, in which hosts may not reach each other.
  if (host_ip.empty()) host_ip = canonical_address(server.id).value_or("");
  HCCL_ASSIGN_OR_RETURN(const auto devices, item.list("device"));
  std::set<int> ids;
  std::set<std::uint16_t> ports;
  for (const TableItem& at : devices) {
    HCCL_ASSIGN_OR_RETURN(Device device, read_device(at, host_ip, super_pods));
    if (!ids.insert(device.id).second) {
      return wrong_value(std::to_string(device.id), at.place("device_id"),
                         "an id that no other device of server " + server.id + " has");
    }
    if (device.host_port != 0 && !ports.insert(device.host_port).second) {
      return wrong_value(std::to_string(device.host_port), at.place("host_port"),
                         "a port that no other device of server " + server.id + " has");
    }
    server.devices.push_back(std::move(device));
  }
  return server;
}

// With several servers, each device must have a device_ip, or its server must have a host_ip. All
// devices have the same number of addresses, of one family, and no address appears twice.
Status check_addresses(const std::vector<Server>& servers) {
  std::set<std::string_view> seen;
  const std::size_t each = servers.front().devices.front().ips.size();
  std::optional<bool> v6;
  for (const Server& server : servers) {
    for (const Device& device : server.devices) {
      const std::string place = device.place + ".device_ip";
      if (servers.size() > 1 && device.ips.empty() && device.host_ip.empty()) {
        return wrong_value(
            "", place,
            "an IP address, as there are several servers; or add host_ip to server " + server.id);
      }
      if (device.ips.size() != each) {
        return wrong_value(std::to_string(device.ips.size()) + " addresses", place,
                           std::to_string(each) + " addresses, as on the first device");
      }
      for (const std::string& ip : device.ips) {
        const bool this_v6 = ip.find(':') != std::string::npos;
        if (v6.value_or(this_v6) != this_v6) {
          return wrong_value(ip, place, "addresses of one family, IPv4 or IPv6, on all ranks");
        }
        v6 = this_v6;
        if (!seen.insert(ip).second) {
          return wrong_value(ip, place, "an address that no other device has");
        }
      }
    }
  }
  return {};
}

// If ranks use the hosts' own network, all ranks need the host's address. (If there are several
// servers and no device_ips, check_addresses() has already refused a table that lacks a host_ip.)
Status check_host_mode(const std::vector<Server>& servers) {
  bool host_mode = false;
  for (const Server& server : servers) {
    for (const Device& device : server.devices) host_mode |= device.on_host;
  }
  if (!host_mode) return {};
  for (const Server& server : servers) {
    if (server.devices.front().host_ip.empty()) {
      return wrong_value("", "host_ip of server " + server.id,
                         "an IP address, as ranks use the host network: add host_ip");
    }
  }
  return {};
}

// The super pod of each server. Every server must be in exactly one pod, and every named server
// must exist.
Result<std::map<std::string, std::string>> read_pods(const TableItem& root,
                                                     const std::vector<Server>& servers) {
  std::map<std::string, std::string> pods;
  for (const Server& server : servers) pods[server.id] = "";
  if (!root.has("super_pod_list")) return pods;
  HCCL_ASSIGN_OR_RETURN(const auto list, root.list("super_pod_list"));
  std::set<std::string> names;
  std::set<std::string> placed;
  for (const TableItem& item : list) {
    HCCL_ASSIGN_OR_RETURN(const std::string name, item.name("super_pod_id", 1, 128));
    if (!names.insert(name).second) {
      return wrong_value(name, item.place("super_pod_id"), "an id that no other super pod has");
    }
    HCCL_ASSIGN_OR_RETURN(const auto members, item.list("server_list"));
    for (const TableItem& member : members) {
      HCCL_ASSIGN_OR_RETURN(const std::string id, member.name("server_id", 1, 64));
      const auto known = pods.find(id);
      if (known == pods.end() || !placed.insert(id).second) {
        return wrong_value(id, member.place("server_id"),
                           "a server of server_list that no super pod has yet");
      }
      known->second = name;
    }
  }
  if (placed.size() != servers.size()) {
    return wrong_value(std::to_string(placed.size()) + " servers", "super_pod_list",
                       "the " + std::to_string(servers.size()) + " servers of server_list");
  }
  return pods;
}

Status check_super_devices(const std::vector<Server>& servers,
                           const std::map<std::string, std::string>& pods) {
  std::set<std::pair<std::string, std::uint64_t>> seen;
  for (const Server& server : servers) {
    for (const Device& device : server.devices) {
      if (!device.super_device.has_value()) continue;
      if (!seen.emplace(pods.at(server.id), *device.super_device).second) {
        return wrong_value(std::to_string(*device.super_device), device.place + ".super_device_id",
                           "an id that no other device of the super pod has");
      }
    }
  }
  return {};
}

// A device_port belongs to the device's own network card. With a host address, the port is used
// only if ranks with that address have different ports.
void choose_ports(const Server& server, std::vector<RankEntry>& entries) {
  std::map<std::pair<std::string, std::uint16_t>, int> users;
  for (const RankEntry& entry : entries) ++users[{entry.address, entry.port}];
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (server.devices[i].host_port == 0 && users[{entries[i].address, entries[i].port}] > 1) {
      entries[i].port = 0;
    }
  }
}

}  // namespace

Result<TableDraft> read_server_table(const TableItem& root, bool super_pods) {
  HCCL_ASSIGN_OR_RETURN(const auto list, root.list("server_list"));
  if (root.has("server_count")) {
    HCCL_RETURN_IF_ERROR(root.count("server_count", list.size(), "servers in server_list"));
  }
  std::vector<Server> servers;
  std::set<std::string> ids;
  for (const TableItem& item : list) {
    HCCL_ASSIGN_OR_RETURN(Server server, read_server(item, super_pods));
    if (!ids.insert(server.id).second) {
      return wrong_value(server.id, item.place("server_id"), "an id that no other server has");
    }
    servers.push_back(std::move(server));
  }
  HCCL_RETURN_IF_ERROR(check_addresses(servers));
  HCCL_RETURN_IF_ERROR(check_host_mode(servers));

  TableDraft draft;
  if (super_pods) {
    HCCL_ASSIGN_OR_RETURN(const auto pods, read_pods(root, servers));
    HCCL_RETURN_IF_ERROR(check_super_devices(servers, pods));
    for (const auto& [server, pod] : pods) draft.extra += "super pod " + pod + ": " + server + "\n";
  }
  for (std::size_t s = 0; s < servers.size(); ++s) {
    std::vector<RankEntry> entries;
    for (const Device& device : servers[s].devices) {
      const std::string& address =
          !device.host_ip.empty() || device.ips.empty() ? device.host_ip : device.ips.front();
      const auto port = device.host_port != 0 ? device.host_port : device.device_port;
      entries.push_back({device.rank, servers[s].id, address, device.id, port});
      entries.back().of_device = device.host_ip.empty();
    }
    choose_ports(servers[s], entries);
    for (RankEntry& entry : entries) {
      HCCL_RETURN_IF_ERROR(add_rank(draft, std::move(entry), list[s]));
    }
  }
  return draft;
}

}  // namespace hccl::join
