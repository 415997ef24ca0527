#include "hccl/join/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <tuple>
#include <utility>

#include "hccl/base/fd.h"
#include "hccl/base/socket.h"
#include "hccl/base/text.h"

namespace hccl::join {
namespace {

using Bytes = std::array<unsigned char, 16>;

// Converts an address to bytes, IPv4 as ::ffff:a.b.c.d, so that all spellings of it give equal
// bytes.
bool to_bytes(std::string_view text, Bytes& out) {
  const std::string host(text.substr(0, text.find('%')));
  if (host.find('\0') != std::string::npos) return false;
  out = {};
  if (inet_pton(AF_INET, host.c_str(), out.data() + 12) == 1) {
    out[10] = out[11] = 0xff;
    return true;
  }
  return inet_pton(AF_INET6, host.c_str(), out.data()) == 1;
}

bool needs_zone(const sockaddr* address) {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
  }
  return (ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24) == 127;
}

bool is_loopback(std::string_view address) {
  Bytes b;
  if (!to_bytes(address, b)) return false;
  constexpr Bytes kV4 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127};
  constexpr Bytes kV6 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  return std::equal(b.begin(), b.begin() + 13, kV4.begin()) || b == kV6;
}

// The local address from which the system sends to a numeric address; empty without a route. Sends
// nothing.
std::string address_towards(const std::string& numeric) {
  const auto to = parse_address(numeric, 9);
  if (!to.ok()) return {};
  const Fd fd(::socket(to->family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid() || ::connect(fd.get(), to->get(), to->length) != 0) return {};
  const auto own = local_endpoint(fd.get());
  return own.ok() ? own->address : std::string();
}

// The local address that the default route uses: the one towards an address for documentation (RFC
// 5737, 3849). No network has such addresses, so only the default route leads there.
std::string default_address(int family) {
  return address_towards(family == AF_INET6 ? "2001:db8::1" : "198.51.100.1");
}

// HCCL_SOCKET_IFNAME in parts. Config has checked its grammar.
struct NameRule {
  bool negated = false;
  bool exact = false;
  std::vector<std::string_view> names;

  explicit NameRule(std::string_view text) {
    if (text.starts_with('^')) negated = true, text.remove_prefix(1);
    if (text.starts_with('=')) exact = true, text.remove_prefix(1);
    names = split_at(text, ',');
  }
  bool matches(std::string_view name) const {
    const bool listed = std::any_of(names.begin(), names.end(), [&](std::string_view word) {
      return exact ? name == word : name.starts_with(word);
    });
    return listed != negated;
  }
};

// 0 for ordinary names, 1 for docker*, 2 for lo*.
int group(const Interface& at) {
  if (at.name.starts_with("lo")) return 2;
  return at.name.starts_with("docker") ? 1 : 0;
}

bool is_link_local(const Interface& at) { return at.address.starts_with("169.254."); }

// The first address of the preferred family, else the first address. Addresses that routers do not
// forward come last.
const Interface* pick(const std::vector<const Interface*>& from, int family) {
  for (const bool link_local : {false, true}) {
    for (const bool preferred : {true, false}) {
      for (const Interface* at : from) {
        if (is_link_local(*at) == link_local && (at->family == family) == preferred) return at;
      }
    }
  }
  return nullptr;
}

Result<Interface> by_address(const std::vector<Interface>& all, const Config& config) {
  Bytes wanted;
  if (!to_bytes(config.if_ip, wanted)) {
    return Status(Code::kPara, "EI0001: HCCL_IF_IP \"" + shown(config.if_ip) + "\" is no address");
  }
  if (wanted[0] == 0xfe && (wanted[1] & 0xc0) == 0x80) {
    return Status(Code::kNotSupport, "HCCL_IF_IP " + config.if_ip +
                                         " is a link-local address: choose a global or a unique "
                                         "local address, or one of IPv4");
  }
  for (const Interface& at : all) {
    Bytes have;
    const bool same = to_bytes(at.address, have) && have == wanted;
    if (same && (config.if_ip_interface.empty() || config.if_ip_interface == at.name)) return at;
  }
  const std::string where =
      config.if_ip_interface.empty() ? "no interface" : "interface " + config.if_ip_interface;
  return Status(Code::kNotFound,
                "the address that HCCL_IF_IP or CM_WORKER_IP names must be this host's: " + where +
                    (config.if_ip_interface.empty() ? " has " : " does not have ") + config.if_ip);
}

Status nothing(const std::vector<Interface>& all, const std::string& why) {
  std::string there;
  for (const Interface& at : all) there += " " + at.name + "=" + at.address;
  return Status(Code::kNotFound, why + "; this host has" + (there.empty() ? " none" : there));
}

Status no_match(const std::vector<Interface>& all, const Config& config) {
  return nothing(all,
                 "no interface matches HCCL_SOCKET_IFNAME \"" + shown(config.socket_ifname) + "\"");
}

}  // namespace

Result<std::vector<Interface>> local_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return Status(Code::kSyscall,
                  std::string("listing network interfaces: ") + std::strerror(errno));
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  const std::string defaults[] = {default_address(AF_INET), default_address(AF_INET6)};
  std::vector<Interface> out;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    const int family = at->ifa_addr->sa_family;
    if ((family != AF_INET && family != AF_INET6) || needs_zone(at->ifa_addr)) continue;
    Interface own{at->ifa_name, address_text(at->ifa_addr), family};
    own.default_route = own.address == defaults[family == AF_INET ? 0 : 1];
    own.carrier = (at->ifa_flags & IFF_RUNNING) != 0;
    out.push_back(std::move(own));
  }
  return out;
}

Result<Interface> choose_interface(const std::vector<Interface>& all, const Config& config) {
  if (!config.if_ip.empty()) return by_address(all, config);
  const int family = config.socket_family == AF_INET6 ? AF_INET6 : AF_INET;
  if (!config.socket_ifname.empty()) {
    const NameRule rule(config.socket_ifname);
    std::vector<const Interface*> matching;
    for (const Interface& at : all) {
      if (rule.matches(at.name)) matching.push_back(&at);
    }
    if (const Interface* at = pick(matching, family)) return *at;
    return no_match(all, config);
  }
  // group() counts before the address family. Otherwise a host that uses only IPv6 could get its
  // loopback interface, because every host has an IPv4 loopback address.
  for (int wanted = 0; wanted <= 2; ++wanted) {
    std::vector<const Interface*> in_group;
    for (const Interface& at : all) {
      if (group(at) == wanted && at.carrier) in_group.push_back(&at);
    }
    std::stable_sort(in_group.begin(), in_group.end(), [](const Interface* a, const Interface* b) {
      return std::tie(b->default_route, a->name) < std::tie(a->default_route, b->name);
    });
    if (const Interface* at = pick(in_group, family)) return *at;
  }
  return nothing(all, "no network interface has an address and a carrier");
}

Result<std::string> local_address(const Config& config) {
  HCCL_ASSIGN_OR_RETURN(const auto all, local_interfaces());
  HCCL_ASSIGN_OR_RETURN(const Interface chosen, choose_interface(all, config));
  return chosen.address;
}

Result<std::string> source_address(const Config& config, const std::string& root) {
  if (is_loopback(root) || (config.if_ip.empty() && config.socket_ifname.empty())) return {""};
  const int family = root.find(':') == root.npos ? AF_INET : AF_INET6;
  HCCL_ASSIGN_OR_RETURN(const auto all, local_interfaces());
  if (!config.if_ip.empty()) {
    HCCL_ASSIGN_OR_RETURN(const Interface own, by_address(all, config));
    return own.family == family ? own.address : "";
  }
  const NameRule rule(config.socket_ifname);
  const std::string usual = address_towards(root);
  std::string found;
  bool any = false;
  for (const Interface& at : all) {
    if (!rule.matches(at.name)) continue;
    any = true;
    if (at.address == usual) return {""};
    const bool usable = at.family == family && at.carrier && !is_loopback(at.address);
    if (found.empty() && usable) found = at.address;
  }
  if (!any) return no_match(all, config);
  return found;
}

std::string alternatives_to(std::string_view address) {
  const auto all = local_interfaces();
  if (!all.ok()) return {};
  std::string here, others;
  for (const Interface& at : *all) {
    if (group(at) == 2 || !at.carrier) continue;
    at.address == address ? here = at.name : others += " " + at.name + "=" + at.address;
  }
  if (here.empty() || others.empty()) return {};
  return "; rank 0 listens at " + std::string(address) + " (" + here +
         ") of its host, which also has" + others +
         ": if other hosts cannot reach it, choose with HCCL_SOCKET_IFNAME";
}

bool is_local(std::string_view address) {
  Bytes wanted;
  if (!to_bytes(address, wanted)) return false;
  if (is_loopback(address)) return true;  // also addresses of 127.0.0.0/8 that no interface lists
  const auto all = local_interfaces();
  if (!all.ok()) return false;
  return std::any_of(all->begin(), all->end(), [&](const Interface& each) {
    Bytes own;
    return to_bytes(each.address, own) && own == wanted;
  });
}

Result<std::string> resolve(const std::string& host, const Config& config) {
  const auto unknown = [&](const std::string& why) {
    return Status(Code::kNotFound, "host \"" + shown(host) + "\" has no address: " + why);
  };
  if (host.empty() || host.find('\0') != std::string::npos) return unknown("not a name");
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &list); error != 0) {
    return unknown(error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  const int wanted = config.socket_family == AF_INET6 ? AF_INET6 : AF_INET;
  // Prefers addresses that are not loopback and, among equals, the wanted family.
  const auto worth = [&](const addrinfo* at) {
    return (is_loopback(at->ai_addr) ? 0 : 2) + (at->ai_family == wanted ? 1 : 0);
  };
  const addrinfo* best = nullptr;
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    const bool ip = at->ai_family == AF_INET || at->ai_family == AF_INET6;
    if (!ip || needs_zone(at->ai_addr)) continue;
    if (best == nullptr || worth(at) > worth(best)) best = at;
  }
  if (best == nullptr) return unknown("no IPv4 or IPv6 address");
  Bytes numeric;
  const bool means_loopback = to_bytes(host, numeric) || host.starts_with("localhost");
  if (is_loopback(best->ai_addr) && !means_loopback) return local_address(config);
  return address_text(best->ai_addr);
}

}  // namespace hccl::join
