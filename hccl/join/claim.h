// Names that only one process of a host can hold at a time. Each name is an abstract Unix socket,
// which the kernel frees when the process ends. Processes of one network namespace see each other's
// names.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "hccl/base/fd.h"

namespace hccl::join {

/// Opens a descriptor by `make`. Forked children close their copies of the descriptor, because its
/// lock or name must end with this process.
using OpenUnshared = std::function<std::shared_ptr<Fd>(const std::function<Fd()>& make)>;

/// Holds the name as long as the returned descriptor is open. Returns an invalid descriptor if
/// another descriptor holds the name.
Fd claim(const std::string& name);
bool is_claimed(const std::string& name);

/// 64 hex digits, the digest of a text.
std::string digest_name(const std::string& text);

}  // namespace hccl::join
