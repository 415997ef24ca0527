// Matches and copies the messages that a rank sends to itself. Every backend uses this link.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>

#include "hccl/base/status.h"
#include "transport/transport.h"

namespace hccl::transport {

/// A first-in-first-out queue of requests, linked through Request::next_. Owns nothing.
class RequestQueue {
 public:
  bool empty() const { return head_ == nullptr; }
  Request* front() const { return head_; }
  void push(Request& request) {
    request.next_ = nullptr;
    (head_ == nullptr ? head_ : tail_->next_) = &request;
    tail_ = &request;
  }
  Request* pop() {
    Request* first = head_;
    if (first != nullptr) head_ = first->next_;
    return first;
  }

 private:
  Request* head_ = nullptr;
  Request* tail_ = nullptr;  ///< meaningless while empty
};

/// The failure of a receive whose message has another size. Every backend uses this text.
Status size_mismatch(int peer, std::uint32_t lane, std::uint64_t posted, std::uint64_t sent);

/// If the request's peer or lane is out of range (kPara), or the mesh is aborted, fails the request
/// and returns true.
bool refused(Request& request, int size, int peer, std::uint32_t lane, const AbortFlag& aborted);

/// Matches sends with receives by lane, in the order of posting. A send completes when its bytes
/// are copied, so both requests complete in the call that posts the second one. The thread rules of
/// the mesh apply.
class SelfLink {
 public:
  /// Begins the request and posts it. `rank` is this rank, which statuses name as the peer.
  void send(Request& request, int rank, std::uint32_t lane, std::span<const std::byte> bytes);
  void recv(Request& request, int rank, std::uint32_t lane, std::span<std::byte> bytes);
  /// Fails all posted requests. The mesh rejects later ones.
  void fail(const Status& status);

 private:
  struct LaneQueues {
    RequestQueue sends;
    RequestQueue receives;
  };
  static void match(LaneQueues& lane);

  std::unordered_map<std::uint32_t, LaneQueues> lanes_;
};

}  // namespace hccl::transport
