// The libfabric objects of one mesh, closed in the right order.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/status.h"
#include "transport/ofi/provider.h"

namespace hccl::transport::ofi {

template <class T>
struct FidClose {
  void operator()(T* object) const { fi_close(&object->fid); }
};
template <class T>
using Fid = std::unique_ptr<T, FidClose<T>>;

struct Endpoint {
  static Result<Endpoint> open(const std::string& address, const std::string& provider);

  /// The address of this endpoint, in the provider's own form.
  Result<std::string> name() const;
  /// Adds peers, given the name() of each. Returns their handles in the same order.
  Result<std::vector<fi_addr_t>> insert(std::span<const std::string> names) const;
  /// Whether every buffer must be registered before it is used.
  bool registers_memory() const { return (info->domain_attr->mr_mode & FI_MR_LOCAL) != 0; }
  Result<Fid<fid_mr>> register_memory(std::span<std::byte> bytes);
  std::string_view provider() const { return info->fabric_attr->prov_name; }

  // C++ destroys the last member first, so the endpoint closes before its fabric.
  Info info;
  Fid<fid_fabric> fabric;
  Fid<fid_domain> domain;
  Fid<fid_av> peers;
  Fid<fid_cq> completions;
  Fid<fid_ep> endpoint;
  int wait_fd = -1;  ///< readable when completions may be read; -1 if the provider has none
  std::uint64_t next_key = 0;  ///< for providers that let the application number its regions
};

}  // namespace hccl::transport::ofi
