// The network interfaces of this host, and which address ranks should be reached at.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/config.h"
#include "hccl/base/status.h"

namespace hccl::join {

struct Interface {
  std::string name;
  std::string address;  ///< numeric, in its shortest form, without a zone
  int family = 0;       ///< AF_INET or AF_INET6
};

/// The addresses of all interfaces that are up, in the order of the operating system. Addresses
/// that mean nothing without a zone (IPv6 link-local) are left out. kSyscall if the system has no
/// answer.
Result<std::vector<Interface>> local_interfaces();

/// The one to bind to, by CM_WORKER_IP or HCCL_IF_IP, else HCCL_SOCKET_IFNAME, else the first in
/// the order of names that is neither docker* nor lo*, then docker*, then lo*. Of the family that
/// HCCL_SOCKET_FAMILY prefers (IPv4), else of the other. Pure. kNotFound when nothing matches.
Result<Interface> choose_interface(const std::vector<Interface>& all, const Config& config);

/// choose_interface() over local_interfaces().
Result<std::string> local_address(const Config& config);

/// Whether no stranger can reach the address from the internet: loopback, private IPv4 (RFC 1918),
/// link-local, unique local IPv6. False for text that is no IP address.
bool is_private(std::string_view address);

/// Whether the address is one of this host's own.
bool is_local(std::string_view address);

/// A host's numeric address by its name (or address), of `family`, else of the other one; AF_UNSPEC
/// prefers IPv4. Blocks for as long as the system's resolver does. kNotFound without one.
/// On the host itself its name may stand for a loopback address: bind to local_address() instead.
Result<std::string> resolve(const std::string& host, int family);

}  // namespace hccl::join
