// The identity of this host, and the cores that this process may use.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/process.h"
#include "hccl/base/status.h"

namespace hccl::join {

/// Names the boot and the network namespace, at most 128 bytes. Only a hint: two processes with
/// equal identities probably share memory. One of the two must map the other's memory to be sure.
using HostIdentity = std::string;
HostIdentity host_identity(const std::string& boot);

/// The number of this process's namespace of a kind ("net", "pid").
std::string own_namespace(const char* kind);

/// The part of an identity that names the machine. Hosts that are network namespaces of one machine
/// share this part.
std::string_view machine_of(const HostIdentity& host);

/// The cores that the calling thread may run on: one bit each, the first core's bit lowest, without
/// zeroes at the end. Empty if the system does not report them.
std::string core_mask();

/// The processor's model and the number of cores: "AMD EPYC 9654 with 192 cores". Plain ASCII, at
/// most 128 bytes.
std::string cpu_model();

/// The indices of the masks, in an order in which consecutive ranks run on different cores: the
/// first index of each group of equal masks, then the second index of each group, and so on. Empty
/// if no order helps: no two masks are equal, all are equal, or different masks have a core in
/// common.
std::vector<int> cores_in_turn(std::span<const std::string> masks);

/// The number of cores that are in at least one of these masks.
int count_cores(std::span<const std::string> masks);

}  // namespace hccl::join
