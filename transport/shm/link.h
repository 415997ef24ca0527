// The link to one peer: two rings (ring.h), and the queues of posted requests of each lane.
//
// All lanes of a pair share the ring, so no message may block the ring. A message enters the ring
// only if it can leave the ring no matter how the receiver acts:
//   granted  The message's receive is posted. The receiver counts the receives that it posts on
//            each lane in shared memory; message k of a lane is granted once that count exceeds k.
//            The message passes through the ring in pieces, directly into the posted buffer.
//   eager    The message is small. The sender does not look at that count and sends one frame. If
//            no receive is posted, the message is staged in the receiver's memory. The sender never
//            sends more than the staging space can hold; eager_taken, the cost of all eager
//            messages that met their receive, tells how much of the space is free.
// So staging is bounded, the reader never stops reading, and a sender waits only for a posted
// receive or for the reader to run.
//
// A rank that publishes a value (head, tail, posted, …: seq_cst stores) then checks whether the
// peer sleeps (seq_cst load). A rank that wants to sleep publishes its sleep before it reads those
// values for the last time. In the single order of seq_cst operations at least one of the ranks
// sees the other's store, so no wake-up is lost.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "hccl/base/status.h"
#include "transport/self_link.h"
#include "transport/shm/ring.h"
#include "transport/shm/segment.h"
#include "transport/transport.h"

namespace hccl::transport::shm {

/// Sizes that both ends of a ring compute from the ring's size.
struct Limits {
  explicit Limits(std::uint64_t ring_bytes);
  std::uint64_t eager;    ///< largest eager message
  std::uint64_t staging;  ///< cost of eager messages that may wait for receives
  std::uint64_t piece;    ///< largest piece of a long message
  std::uint64_t burst;    ///< bytes to move in one direction before the other one's turn
};

/// Only the mesh's thread uses a link. `Atomics` is the policy for atomics, as for the rings.
/// link.cc has the code and instantiates it for StdAtomics.
template <class Atomics = StdAtomics>
class BasicLink {
 public:
  using RankState = BasicRankState<Atomics>;
  using RingReader = BasicRingReader<Atomics>;
  using RingWriter = BasicRingWriter<Atomics>;

  /// The segment contains `peer_state` and the rings and must outlive the link. The caller still
  /// owns `wake_fd`.
  BasicLink(int rank, int peer, RingWriter out, RingReader in, RankState* peer_state, int wake_fd);

  void send(Request& request);
  void recv(Request& request);
  /// True if bytes moved or a request completed.
  bool progress();
  /// Fails all present and later requests. The first failure stays.
  void fail(const Status& status);
  /// Tells the peer that this rank closes its mesh.
  void close();
  int peer() const { return peer_; }

 private:
  struct Staged {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size = 0;
  };
  struct LaneState {
    std::uint32_t number = 0;
    RequestQueue sends;
    std::uint32_t sent = 0;  // messages sent completely; number of the first of `sends`
    bool sending = false;    // the first of `sends` has pieces in the ring
    bool listed = false;     // in active_
    RequestQueue receives;
    std::uint32_t posted = 0;   // receives ever posted
    bool receiving = false;     // the first of `receives` has some of its pieces
    std::uint64_t total = 0;    // size of the message that is arriving in pieces
    std::uint64_t discard = 0;  // bytes of that message to discard, after a mismatch
    std::deque<Staged> staged;
  };
  enum class Pushed { kMoved, kBlocked, kFull, kFailed };

  LaneState& lane(std::uint32_t number);
  bool push();
  bool push_active();
  Pushed push_piece(LaneState& lane);
  bool has_credit(std::uint64_t cost);
  bool drain();
  const char* take(const Frame& frame);
  const char* take_first(LaneState& lane, const Frame& frame);
  const char* take_next(LaneState& lane, const Frame& frame);
  void release();
  void wake();
  void wake_writer();
  void corrupt(const char* what);

  RingReader in_;
  RingWriter out_;
  RankState* peer_state_;
  std::vector<LaneState*> active_;  // lanes with sends; the first one is served next
  bool waiting_ = false;            // sends are blocked; copy of the ring's `waiting`
  Limits limits_;
  std::uint64_t eager_sent_ = 0;        // cost of all eager messages sent
  std::uint64_t eager_taken_seen_ = 0;  // eager_taken of the peer, as last read
  std::uint64_t eager_taken_ = 0;       // cost of the peer's eager messages taken
  std::uint64_t staged_cost_ = 0;
  std::uint64_t released_ = 0;  // the reader's position that the peer knows
  int rank_;
  int peer_;
  int wake_fd_;
  Status failure_;
  std::vector<std::unique_ptr<LaneState>> lanes_;
};

using Link = BasicLink<>;
extern template class BasicLink<StdAtomics>;

}  // namespace hccl::transport::shm
