// Which libfabric provider to use.
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

/// Why a provider must not be used, or empty. Some never suit us, whoever asks for them.
std::string_view unfit(std::string_view provider);

/// A provider of reliable datagrams with tagged, ordered messages. One that speaks IP is bound to
/// `address`; the others (a fabric with addresses of its own) are not. `wanted` is a provider's
/// name ("tcp", "verbs;ofi_rxm") or empty for the best one here: a fast fabric if there is one,
/// else TCP. kNotSupport, with the reason, if there is none.
Result<Info> choose_provider(const std::string& address, const std::string& wanted);

/// "why (libfabric's words)".
Status fabric_error(Code code, std::string_view what, ssize_t error, int culprit = Status::kNobody);

}  // namespace hccl::transport::ofi
