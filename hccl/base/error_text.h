// Texts for errors of the system, with advice for the user.
#pragma once

#include <string>
#include <string_view>

namespace hccl {

/// The words of an error text for a connection that the peer has closed; the caller's rank follows.
/// The cause is elsewhere; the peer may know the cause.
inline constexpr std::string_view kClosedByPeer = " closed its connection to rank ";

/// The meaning of an errno, with advice for the user: to raise a limit, or not to close the
/// library's descriptors.
std::string error_text(int error);
/// The limits of this process that may cause the error, and the commands that raise the limits.
/// Empty if no such limit is set.
std::string limit_text(int error);

}  // namespace hccl
