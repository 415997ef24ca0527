#include "transport/ofi/endpoint.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <algorithm>

#include "hccl/base/thread.h"

namespace hccl::transport::ofi {
namespace {

/// Turns the result of a call of libfabric into a status.
Status check(int result, std::string_view what) {
  return result == 0 ? Status() : fabric_error(Code::kNetwork, what, result);
}

Status open_completions(Endpoint& e) {
  fi_cq_attr attributes{};
  attributes.size = e.info->tx_attr->size + e.info->rx_attr->size;
  attributes.format = FI_CQ_FORMAT_TAGGED;
  attributes.wait_obj = FI_WAIT_FD;
  fid_cq* queue = nullptr;
  int result = fi_cq_open(e.domain.get(), &attributes, &queue, nullptr);
  const bool can_wait = result == 0;
  if (!can_wait) {
    attributes.wait_obj = FI_WAIT_NONE;
    result = fi_cq_open(e.domain.get(), &attributes, &queue, nullptr);
  }
  HCCL_RETURN_IF_ERROR(check(result, "libfabric cannot open a completion queue"));
  e.completions.reset(queue);
  if (can_wait && fi_control(&queue->fid, FI_GETWAIT, &e.wait_fd) != 0) e.wait_fd = -1;
  return Status();
}

Status open_endpoint(Endpoint& e) {
  fid_ep* endpoint = nullptr;
  HCCL_RETURN_IF_ERROR(check(fi_endpoint(e.domain.get(), e.info.get(), &endpoint, nullptr),
                             "libfabric cannot open an endpoint"));
  e.endpoint.reset(endpoint);
  HCCL_RETURN_IF_ERROR(check(fi_ep_bind(endpoint, &e.peers->fid, 0),
                             "libfabric cannot bind the peers to the endpoint"));
  HCCL_RETURN_IF_ERROR(check(fi_ep_bind(endpoint, &e.completions->fid, FI_TRANSMIT | FI_RECV),
                             "libfabric cannot bind the completion queue to the endpoint"));
  HCCL_RETURN_IF_ERROR(check(fi_enable(endpoint), "libfabric cannot enable the endpoint"));
  return Status();
}

}  // namespace

Result<Endpoint> Endpoint::open(const std::string& address, const std::string& provider) {
  const SignalsBlocked blocked;  // libfabric starts threads
  Endpoint e;
  HCCL_ASSIGN_OR_RETURN(e.info, choose_provider(address, provider));
  fid_fabric* fabric = nullptr;
  HCCL_RETURN_IF_ERROR(
      check(fi_fabric(e.info->fabric_attr, &fabric, nullptr), "libfabric cannot open a fabric"));
  e.fabric.reset(fabric);
  fid_domain* domain = nullptr;
  HCCL_RETURN_IF_ERROR(
      check(fi_domain(fabric, e.info.get(), &domain, nullptr), "libfabric cannot open a domain"));
  e.domain.reset(domain);
  fi_av_attr attributes{};
  attributes.type = e.info->domain_attr->av_type;
  fid_av* peers = nullptr;
  HCCL_RETURN_IF_ERROR(check(fi_av_open(domain, &attributes, &peers, nullptr),
                             "libfabric cannot open an address table"));
  e.peers.reset(peers);
  HCCL_RETURN_IF_ERROR(open_completions(e));
  HCCL_RETURN_IF_ERROR(open_endpoint(e));
  return e;
}

Result<std::string> Endpoint::name() const {
  std::string text(512, '\0');
  std::size_t length = text.size();
  HCCL_RETURN_IF_ERROR(check(fi_getname(&endpoint->fid, text.data(), &length),
                             "libfabric cannot tell the endpoint's address"));
  text.resize(length);
  return text;
}

Result<std::vector<fi_addr_t>> Endpoint::insert(std::span<const std::string> names) const {
  std::string packed;
  for (const std::string& name : names) packed += name;
  std::vector<fi_addr_t> handles(names.size(), FI_ADDR_NOTAVAIL);
  const int inserted =
      fi_av_insert(peers.get(), packed.data(), names.size(), handles.data(), 0, nullptr);
  if (inserted < 0) {
    return fabric_error(Code::kNetwork, "libfabric cannot use the peers' addresses", inserted);
  }
  if (static_cast<std::size_t>(inserted) != names.size() ||
      std::find(handles.begin(), handles.end(), FI_ADDR_NOTAVAIL) != handles.end()) {
    return Status(Code::kNetwork, "libfabric refuses the address of a peer");
  }
  return handles;
}

Result<Fid<fid_mr>> Endpoint::register_memory(std::span<std::byte> bytes) {
  fid_mr* region = nullptr;
  const int result = fi_mr_reg(domain.get(), bytes.data(), bytes.size(), FI_SEND | FI_RECV, 0,
                               next_key++, 0, &region, nullptr);
  HCCL_RETURN_IF_ERROR(check(result, "libfabric cannot register memory"));
  return Fid<fid_mr>(region);
}

}  // namespace hccl::transport::ofi
