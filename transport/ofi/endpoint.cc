#include "transport/ofi/endpoint.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <algorithm>

#include "hccl/base/thread.h"

namespace hccl::transport::ofi {
namespace {

Status refused(std::string_view what, ssize_t error) {
  return fabric_error(Code::kNetwork, what, error);
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
  if (result != 0) return refused("libfabric cannot open a completion queue", result);
  e.completions.reset(queue);
  if (can_wait && fi_control(&queue->fid, FI_GETWAIT, &e.wait_fd) != 0) e.wait_fd = -1;
  return Status();
}

Status open_endpoint(Endpoint& e) {
  fid_ep* endpoint = nullptr;
  if (const int r = fi_endpoint(e.domain.get(), e.info.get(), &endpoint, nullptr); r != 0) {
    return refused("libfabric cannot open an endpoint", r);
  }
  e.endpoint.reset(endpoint);
  if (const int r = fi_ep_bind(endpoint, &e.peers->fid, 0); r != 0) {
    return refused("libfabric cannot bind the peers to the endpoint", r);
  }
  if (const int r = fi_ep_bind(endpoint, &e.completions->fid, FI_TRANSMIT | FI_RECV); r != 0) {
    return refused("libfabric cannot bind the completion queue to the endpoint", r);
  }
  if (const int r = fi_enable(endpoint); r != 0) {
    return refused("libfabric cannot enable the endpoint", r);
  }
  return Status();
}

}  // namespace

Result<Endpoint> Endpoint::open(const std::string& address, const std::string& provider) {
  const SignalsBlocked blocked;  // libfabric starts threads
  Endpoint e;
  HCCL_ASSIGN_OR_RETURN(e.info, choose_provider(address, provider));
  fid_fabric* fabric = nullptr;
  if (const int r = fi_fabric(e.info->fabric_attr, &fabric, nullptr); r != 0) {
    return refused("libfabric cannot open a fabric", r);
  }
  e.fabric.reset(fabric);
  fid_domain* domain = nullptr;
  if (const int r = fi_domain(fabric, e.info.get(), &domain, nullptr); r != 0) {
    return refused("libfabric cannot open a domain", r);
  }
  e.domain.reset(domain);
  fi_av_attr attributes{};
  attributes.type = e.info->domain_attr->av_type;
  fid_av* peers = nullptr;
  if (const int r = fi_av_open(domain, &attributes, &peers, nullptr); r != 0) {
    return refused("libfabric cannot open an address table", r);
  }
  e.peers.reset(peers);
  HCCL_RETURN_IF_ERROR(open_completions(e));
  HCCL_RETURN_IF_ERROR(open_endpoint(e));
  return e;
}

Result<std::string> Endpoint::name() const {
  std::string text(512, '\0');
  std::size_t length = text.size();
  if (const int r = fi_getname(&endpoint->fid, text.data(), &length); r != 0) {
    return refused("libfabric cannot tell the endpoint's address", r);
  }
  text.resize(length);
  return text;
}

Result<std::vector<fi_addr_t>> Endpoint::insert(std::span<const std::string> names) const {
  std::string packed;
  for (const std::string& name : names) packed += name;
  std::vector<fi_addr_t> handles(names.size(), FI_ADDR_NOTAVAIL);
  const int inserted =
      fi_av_insert(peers.get(), packed.data(), names.size(), handles.data(), 0, nullptr);
  if (inserted < 0) return refused("libfabric cannot use the peers' addresses", inserted);
  if (static_cast<std::size_t>(inserted) != names.size() ||
      std::find(handles.begin(), handles.end(), FI_ADDR_NOTAVAIL) != handles.end()) {
    return Status(Code::kNetwork, "libfabric refuses the address of a peer");
  }
  return handles;
}

Result<Fid<fid_mr>> Endpoint::register_memory(std::span<std::byte> bytes) {
  fid_mr* region = nullptr;
  const int r = fi_mr_reg(domain.get(), bytes.data(), bytes.size(), FI_SEND | FI_RECV, 0,
                          next_key++, 0, &region, nullptr);
  if (r != 0) return refused("libfabric cannot register memory", r);
  return Fid<fid_mr>(region);
}

}  // namespace hccl::transport::ofi
