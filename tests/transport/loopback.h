// A connection of a test program to itself, and meshes of such connections.
#pragma once

#include <chrono>
#include <list>
#include <vector>

#include "hccl/base/deadline.h"
#include "tests/support/ranks.h"
#include "transport/tcp/tcp.h"

namespace hccl::transport {

inline constexpr char kAddress[] = "127.0.0.1";

inline Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

/// Opens all links of a mesh, by an empty message from the higher rank of each pair. Returns the
/// first failure.
inline Status connect_all(Mesh& mesh) {
  constexpr std::uint32_t kLane = Mesh::kLanes - 1;
  std::list<Request> requests;
  std::vector<Request*> all;
  for (int peer = 0; peer < mesh.size(); ++peer) {
    if (peer == mesh.rank()) continue;
    Request& request = *all.emplace_back(&requests.emplace_back());
    peer < mesh.rank() ? mesh.send(request, peer, kLane, {}) : mesh.recv(request, peer, kLane, {});
  }
  const Status status = testing::wait_all(mesh, all);
  if (!status.ok()) {
    mesh.abort(status);
    mesh.progress();  // no request may outlive this call
  }
  return status;
}

}  // namespace hccl::transport
