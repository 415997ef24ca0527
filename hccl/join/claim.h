// Names that one process of a host holds at a time: abstract Unix sockets, which the kernel frees
// with the process. Processes see each other's names within a network namespace.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "hccl/base/fd.h"

namespace hccl::join {

/// Opens a descriptor by `make`, and makes forked children close their copies: the lock or the name
/// must end with this process.
using OpenUnshared = std::function<std::shared_ptr<Fd>(const std::function<Fd()>& make)>;

/// Holds the name as long as the descriptor is open. Invalid if another descriptor holds it.
Fd claim(const std::string& name);
bool is_claimed(const std::string& name);

/// 64 hex digits, the digest of a text.
std::string digest_name(const std::string& text);

}  // namespace hccl::join
