// The network interfaces of this host, and the choice of the address at which ranks are reached.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/config.h"
#include "hccl/base/status.h"

namespace hccl::join {

struct Interface {
  std::string name;
  std::string address;         ///< numeric, in its shortest form, without a zone
  int family = 0;              ///< AF_INET or AF_INET6
  bool default_route = false;  ///< of the family
  bool carrier = true;
};

/// The addresses of all interfaces that are up, in the order of the operating system, without
/// addresses that need a zone (IPv6 link-local). kSyscall if the system does not report them.
Result<std::vector<Interface>> local_interfaces();

/// The address to bind to: CM_WORKER_IP or HCCL_IF_IP; else that of HCCL_SOCKET_IFNAME; else the
/// first with a carrier that is neither docker* nor lo*, then docker*, then lo*. The interface of
/// the default route comes first, and then the name decides. The address is of the family that
/// HCCL_SOCKET_FAMILY prefers (IPv4), or else of the other family. Pure. kNotFound if nothing
/// matches.
Result<Interface> choose_interface(const std::vector<Interface>& all, const Config& config);

/// choose_interface() over local_interfaces().
Result<std::string> local_address(const Config& config);

/// For the text of a failure: says that the root listens at this address of this host, and lists
/// the addresses that may be chosen instead. Empty if there are none, and for a loopback address.
std::string alternatives_to(std::string_view address);

/// Whether hosts on the internet cannot reach the address: loopback, private IPv4 (RFC 1918),
/// link-local, unique local IPv6. False for text that is no IP address.
bool is_private(std::string_view address);

/// Whether the address belongs to this host.
bool is_local(std::string_view address);

/// The numeric address of a host's name or address, of the preferred family or else of the other.
/// Blocks for as long as the system's resolver does. kNotFound if there is none. On the host
/// itself, its name may resolve to a loopback address only (Debian writes 127.0.1.1 to /etc/hosts),
/// which no other host can use: then the result is local_address().
Result<std::string> resolve(const std::string& host, const Config& config);

}  // namespace hccl::join
