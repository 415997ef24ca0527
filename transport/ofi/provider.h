// Chooses a libfabric provider.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

#include <memory>
#include <string>
#include <string_view>

#include "hccl/base/status.h"

namespace hccl::transport::ofi {

struct InfoFree {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, InfoFree>;

/// Returns why this library never uses a provider, even if the user names it; empty if it can be
/// used.
std::string_view unfit(std::string_view provider);

/// Returns a provider of reliable datagrams with tagged, ordered messages. A provider with IP
/// addresses is bound to `address`; fabrics with their own addresses are not. `wanted` is a
/// provider's name ("tcp", "verbs;ofi_rxm"). If it is empty, the best provider of this host is
/// taken: a fast fabric if there is one, else TCP. Fails with kNotSupport and the reason if no
/// provider fits.
Result<Info> choose_provider(const std::string& address, const std::string& wanted);

/// Returns a status with the text "`what` (libfabric's error text)".
Status fabric_error(Code code, std::string_view what, ssize_t error, int culprit = Status::kNobody);

}  // namespace hccl::transport::ofi
