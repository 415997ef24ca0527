// The TCP connections of a test program.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <filesystem>
#include <string>

namespace hccl::testing {

/// The connected TCP sockets of this process.
inline int connected_sockets() {
  int number = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
        peer.sin_family == AF_INET) {
      ++number;
    }
  }
  return number;
}

}  // namespace hccl::testing
