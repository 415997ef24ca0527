// Texts for errors of the system, with advice for the user.
#pragma once

#include <string>
#include <string_view>

namespace hccl {

/// The end of an error text for a connection that the peer has closed. The cause is elsewhere; the
/// peer may know it.
inline constexpr std::string_view kClosedByPeer = " closed its connection to rank ";

/// The meaning of an error number of the system, and advice for the user: to raise the limit of
/// descriptors, or not to close the library's descriptors.
std::string error_text(int error);
/// The limits of this process that may cause the error, and the commands that raise them. Empty if
/// there is no limit.
std::string limit_text(int error);

}  // namespace hccl
