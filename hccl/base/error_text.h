// Texts for errors of the system, with advice for the user.
#pragma once

#include <string>
#include <string_view>

namespace hccl {

/// Part of the error text for a connection that the peer has closed; the caller's rank follows.
/// This rank does not know the cause, but the peer may.
inline constexpr std::string_view kClosedByPeer = " closed its connection to rank ";

/// Returns the meaning of an errno, with advice for the user: to raise a limit, or not to close the
/// library's descriptors.
std::string error_text(int error);
/// Returns the limits of this process that may cause the error, and the commands that raise the
/// limits. Empty if no such limit is set.
std::string limit_text(int error);

}  // namespace hccl
