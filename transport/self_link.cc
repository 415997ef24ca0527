#include "transport/self_link.h"

#include <cstring>
#include <utility>

namespace hccl::transport {
namespace {

Status check_post(int size, int peer, std::uint32_t lane) {
  if (peer < 0 || peer >= size) {
    return Status(Code::kPara, "peer " + std::to_string(peer) + " is not a rank of a mesh of " +
                                   std::to_string(size) + " ranks");
  }
  if (lane >= Mesh::kLanes) {
    return Status(Code::kPara,
                  "lane " + std::to_string(lane) + " is not below " + std::to_string(Mesh::kLanes));
  }
  return {};
}

}  // namespace

Status size_mismatch(int peer, std::uint32_t lane, std::uint64_t posted, std::uint64_t sent) {
  return Status(Code::kPara,
                "the receive from rank " + std::to_string(peer) + " on lane " +
                    std::to_string(lane) + " was posted with " + std::to_string(posted) +
                    " bytes, but the message has " + std::to_string(sent) + " bytes",
                peer);
}

bool refused(Request& request, int size, int peer, std::uint32_t lane, const AbortFlag& aborted) {
  Status why = check_post(size, peer, lane);
  if (why.ok() && aborted.raised()) why = aborted.reason();
  if (why.ok()) return false;
  request.begin(peer, lane, nullptr, 0);
  request.finish(std::move(why));
  return true;
}

void SelfLink::send(Request& request, int rank, std::uint32_t lane,
                    std::span<const std::byte> bytes) {
  request.begin(rank, lane, const_cast<std::byte*>(bytes.data()), bytes.size());
  LaneQueues& queues = lanes_[lane];
  queues.sends.push(request);
  match(queues);
}

void SelfLink::recv(Request& request, int rank, std::uint32_t lane, std::span<std::byte> bytes) {
  request.begin(rank, lane, bytes.data(), bytes.size());
  LaneQueues& queues = lanes_[lane];
  queues.receives.push(request);
  match(queues);
}

void SelfLink::match(LaneQueues& lane) {
  while (!lane.sends.empty() && !lane.receives.empty()) {
    Request& from = *lane.sends.pop();
    Request& to = *lane.receives.pop();
    if (from.size_ != to.size_) {
      to.finish(size_mismatch(to.peer_, to.lane_, to.size_, from.size_));
    } else {
      // memmove, because a rank may send the bytes into which it receives.
      if (to.size_ != 0) std::memmove(to.data_, from.data_, to.size_);
      to.finish();
    }
    from.finish();
  }
}

void SelfLink::fail(const Status& status) {
  for (auto& [number, lane] : lanes_) {
    while (Request* request = lane.sends.pop()) request->finish(status);
    while (Request* request = lane.receives.pop()) request->finish(status);
  }
}

}  // namespace hccl::transport
