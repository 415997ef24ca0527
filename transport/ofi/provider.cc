#include "transport/ofi/provider.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

namespace hccl::transport::ofi {
namespace {

// Best first. Other providers are used only by name.
constexpr std::array<std::string_view, 9> kPreferred = {
    "efa", "psm3", "psm2", "psm", "cxi", "opx", "verbs;ofi_rxm", "tcp;ofi_rxm", "tcp"};
constexpr std::size_t kUnknown = kPreferred.size();

std::size_t preference(std::string_view provider) {
  return static_cast<std::size_t>(std::find(kPreferred.begin(), kPreferred.end(), provider) -
                                  kPreferred.begin());
}

Info make_hints(const std::string& wanted, bool register_memory) {
  Info hints(fi_allocinfo());
  if (hints == nullptr) return hints;
  hints->caps = FI_TAGGED;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->tx_attr->msg_order = FI_ORDER_SAS;
  hints->rx_attr->msg_order = FI_ORDER_SAS;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;  // a mesh has one thread at a time
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->domain_attr->mr_mode = FI_MR_ALLOCATED | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
  if (register_memory) hints->domain_attr->mr_mode |= FI_MR_LOCAL;
  if (!wanted.empty()) hints->fabric_attr->prov_name = strdup(wanted.c_str());
  return hints;
}

bool has_ip_address(const fi_info& info) {
  return info.addr_format == FI_SOCKADDR || info.addr_format == FI_SOCKADDR_IN ||
         info.addr_format == FI_SOCKADDR_IN6;
}

/// Returns the best provider of a list that is better than `limit`, or null. Lowers `limit` to the
/// preference of the result.
Info best_of(const Info& list, bool bound, bool any, std::size_t& limit) {
  const fi_info* best = nullptr;
  for (const fi_info* info = list.get(); info != nullptr; info = info->next) {
    const std::string_view name = info->fabric_attr->prov_name;
    // An IP provider that is not bound to this rank's address would listen on another address.
    if (!unfit(name).empty() || (!bound && has_ip_address(*info))) continue;
    const std::size_t place = preference(name);
    if (place == kUnknown && !any) continue;
    if (place < limit) {
      best = info;
      limit = place;
    }
  }
  return Info(best == nullptr ? nullptr : fi_dupinfo(best));
}

}  // namespace

std::string_view unfit(std::string_view provider) {
  const auto is = [&](std::string_view name) {
    return provider == name || provider.starts_with(std::string(name) + ";");
  };
  if (is("sockets")) return "it is deprecated by libfabric";
  if (is("shm")) return "it leaves named shared memory behind";
  if (is("udp") || provider.find("ofi_rxd") != std::string_view::npos) {
    return "it is an emulation over UDP for tests";
  }
  return {};
}

Result<Info> choose_provider(const std::string& address, const std::string& wanted) {
  if (const auto why = unfit(wanted); !why.empty()) {
    return Status(Code::kNotSupport, "HCCL_OFI_PROVIDER=" + wanted + " is not used because " +
                                         std::string(why) + "; leave it unset or name another one");
  }
  Info best;
  std::size_t limit = std::numeric_limits<std::size_t>::max();
  int last_error = FI_ENODATA;
  // Tries providers that register memory themselves before those that need registered memory: of
  // equally good providers, the first one wins.
  for (const bool register_memory : {false, true}) {
    for (const bool bound : {true, false}) {
      if (bound && address.empty()) continue;
      const Info hints = make_hints(wanted, register_memory);
      if (hints == nullptr) return Status(Code::kMemory, "libfabric has no memory for its hints");
      fi_info* raw = nullptr;
      const int result = fi_getinfo(FI_VERSION(1, 17), bound ? address.c_str() : nullptr, nullptr,
                                    bound ? FI_SOURCE : 0, hints.get(), &raw);
      const Info list(raw);
      if (result != 0) {
        last_error = -result;
        continue;
      }
      if (Info better = best_of(list, bound, !wanted.empty(), limit)) best = std::move(better);
    }
  }
  if (best == nullptr) {
    return fabric_error(Code::kNotSupport,
                        "libfabric has no provider" + (wanted.empty() ? "" : " " + wanted) +
                            " with reliable, tagged, ordered messages at address " + address,
                        last_error);
  }
  return best;
}

Status fabric_error(Code code, std::string_view what, ssize_t error, int culprit) {
  const int number = static_cast<int>(error < 0 ? -error : error);
  return Status(code, std::string(what) + " (" + fi_strerror(number) + ")", culprit);
}

}  // namespace hccl::transport::ofi
