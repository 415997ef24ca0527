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
  bool default_route = false;  ///< the default route of `family` uses it
  bool carrier = true;
};

/// The addresses of all interfaces that are up, in the order of the operating system, without
/// addresses that need a zone (IPv6 link-local). kSyscall if the system does not report them.
Result<std::vector<Interface>> local_interfaces();

/// Chooses the address to bind to: CM_WORKER_IP or HCCL_IF_IP; else an address of an interface that
/// matches HCCL_SOCKET_IFNAME; else an address of an interface with a carrier. In the last case
/// docker* comes after the other names, and lo* comes last; within each of these three sets the
/// default route comes first, then the names in alphabetical order. The family that
/// HCCL_SOCKET_FAMILY prefers (IPv4) comes before the other family. Makes no system calls.
/// kNotFound if nothing matches; kNotSupport if HCCL_IF_IP is a link-local address of IPv6.
Result<Interface> choose_interface(const std::vector<Interface>& all, const Config& config);

/// choose_interface() over local_interfaces().
Result<std::string> local_address(const Config& config);

/// The local address from which a rank connects to the root. Empty, for the system's choice, if
/// neither HCCL_IF_IP nor HCCL_SOCKET_IFNAME is set, if the system's choice fits
/// HCCL_SOCKET_IFNAME, if the root's address is a loopback address, or if no chosen address is of
/// the root's family. Else the address that HCCL_IF_IP names, or the first usable address of an
/// interface that matches HCCL_SOCKET_IFNAME. Fails as choose_interface() does.
Result<std::string> source_address(const Config& config, const std::string& root);

/// For the text of a failure: states that the root listens at this address of this host, and lists
/// the addresses that may be chosen instead. Empty if there are no such addresses, and for a
/// loopback address.
std::string alternatives_to(std::string_view address);

/// Whether the address belongs to this host. False for text that is no IP address.
bool is_local(std::string_view address);

/// The numeric address of a host's name or address, if possible of the preferred family. Blocks for
/// as long as the system's resolver does. kNotFound if there is no address. On the host itself, the
/// host's name may resolve only to a loopback address (Debian writes 127.0.1.1 to /etc/hosts),
/// which no other host can use: then the result is local_address().
Result<std::string> resolve(const std::string& host, const Config& config);

}  // namespace hccl::join
