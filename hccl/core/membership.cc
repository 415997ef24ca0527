#include "hccl/core/membership.h"

#include <cstring>

#include "hccl/base/auth.h"

namespace hccl::core {

Uuid identity(const Uuid& parent, std::string_view what) {
  const Key hash = digest(std::string(view(parent)) + std::string(what));
  Uuid id;
  std::memcpy(id.data(), hash.data(), id.size());
  return id;
}

Uuid messages_of(const Uuid& communicator) { return identity(communicator, "mailbox exchange 0"); }
Uuid operations_of(const Uuid& communicator) { return identity(communicator, "summons"); }

}  // namespace hccl::core
