// The identity of this host, and the cores that this process may use.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hccl::join {

/// Equal in two processes that may share memory: the boot and the network namespace. A hint only;
/// that memory was really handed over decides. At most 128 bytes.
using HostIdentity = std::string;
HostIdentity host_identity();

/// The part of it that names the machine, which hosts with a network of their own may share.
std::string_view machine_of(const HostIdentity& host);

/// The cores that the calling thread may run on, a bit each, the first core's lowest; without the
/// zeroes at the end. Empty if the system does not say.
std::string core_mask();

/// The processor's model and the number of cores: "AMD EPYC 9654 with 192 cores". Plain ASCII, at
/// most 128 bytes.
std::string cpu_model();

/// The masks' numbers, in an order in which neighbours run on different cores: one of each group of
/// equal masks, then the next of each. Empty where there is nothing to gain: no two masks are
/// equal, all are, or different ones have a core in common.
std::vector<int> cores_in_turn(std::span<const std::string> masks);

/// How many cores are in at least one of these masks.
int count_cores(std::span<const std::string> masks);

}  // namespace hccl::join
