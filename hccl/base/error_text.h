// Errors of the system in words, with what the user can do.
#pragma once

#include <string>
#include <string_view>

namespace hccl {

/// In the text of a connection that the peer has closed: an effect, of which the peer may know the
/// cause.
inline constexpr std::string_view kClosedByPeer = " closed its connection to rank ";

/// The meaning of an error number of the system, and what the user can do about it: to raise the
/// limit of descriptors, not to close those of the library.
std::string error_text(int error);
/// The limits of this process that may be behind the error, and the commands that raise them. Empty
/// where there is no limit.
std::string limit_text(int error);

}  // namespace hccl
