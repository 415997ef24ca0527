// Messages over libfabric: one reliable-datagram endpoint for each mesh, tagged messages, one
// completion queue.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "hccl/base/deadline.h"
#include "hccl/base/waiter.h"
#include "transport/ofi/endpoint.h"
#include "transport/ofi/ofi_sleeper.h"
#include "transport/ofi/tags.h"
#include "transport/self_link.h"
#include "transport/transport.h"

namespace hccl::transport::ofi {

class OfiMesh final : public Mesh {
 public:
  static Result<std::unique_ptr<Mesh>> open(const OpenArgs& args);
  ~OfiMesh() override;

  std::string_view name() const override { return "ofi"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  void send(Request& request, int peer, std::uint32_t lane,
            std::span<const std::byte> bytes) override;
  void recv(Request& request, int peer, std::uint32_t lane, std::span<std::byte> bytes) override;
  bool progress() override;
  Sleeper& sleeper() override { return *sleeper_; }
  void abort(Status status) override;

 private:
  /// The context that libfabric gets for an operation, and returns when the operation ends.
  struct Ticket {
    enum class OpKind { kSend, kReceive, kPeek, kGoodbye };
    fi_context2 context{};  // first, so that a context has the address of its Ticket
    OpKind kind = OpKind::kSend;
  };
  struct Channel;
  /// One send or receive that libfabric has or will get.
  struct Op : Ticket {
    Request* request = nullptr;
    int peer = -1;
    Channel* channel = nullptr;
    std::uint64_t tag = 0;
    std::byte* bytes = nullptr;
    std::size_t size = 0;
    bool posted = false;                   ///< libfabric has the operation
    Status verdict;                        ///< set if its message has another size
    std::size_t sent = 0;                  ///< the size of its message, if different
    Fid<fid_mr> region;                    ///< memory registered for this one operation
    std::size_t place = 0;                 ///< index in busy_
    std::unique_ptr<std::byte[]> scratch;  ///< takes a message of another size
  };
  /// One lane to or from one peer.
  struct Channel : Ticket {
    int peer = -1;
    std::uint32_t lane = 0;
    std::uint64_t sent = 0;     ///< messages so far
    std::uint64_t awaited = 0;  ///< receives so far
    std::deque<Op*> receives;   ///< unfinished receives, in order
    Op* suspect = nullptr;      ///< the oldest receive at the last inspection
    bool peeking = false;
  };
  struct PeerState {
    fi_addr_t address = FI_ADDR_NOTAVAIL;
    bool contacted = false;   ///< a send to the peer or a receive from it was posted
    Status dead;              ///< success while the peer lives
    std::deque<Op*> waiting;  ///< sends that libfabric had no room for, in order
  };

  OfiMesh(Endpoint endpoint, std::unique_ptr<OfiSleeper> sleeper, int rank, const Tags& tags);

  // ofi_mesh.cc: the life of an operation
  Channel& channel(int peer, std::uint32_t lane);
  Op& take_op(Ticket::OpKind kind, Request& request, Channel& channel);
  void post_send(Request& request);
  void post_receive(Op& op);
  /// Posts an Op in libfabric. Returns false if libfabric has no room now. A failure finishes the
  /// Op, and the result is true.
  bool try_post(Op& op);
  Result<void*> descriptor(Op& op);
  bool post_waiting();
  bool read_completions();
  void complete(const fi_cq_tagged_entry& entry);
  void complete_with_error(const fi_cq_err_entry& entry);
  void finish(Op& op, Status status);
  void cancel(Op& op);
  void note_waiting();

  // peer_failures.cc: peers that leave, sizes that differ, aborts
  /// Looks for messages that came but match no receive.
  void inspect();
  void peek(Channel& channel);
  void peeked(Channel& channel, std::size_t size);
  void take_aside(Op& op);
  /// Fails all present and later operations with a peer.
  void fail_peer(int peer, const Status& why);
  void listen_for_goodbye();
  void heard_goodbye(std::uint64_t tag);
  /// Tells the peers that no message follows, so that they do not wait for a time limit.
  void say_goodbye();
  void close_down(const Status& why);

  /// If the oldest receive of a channel is older than this, its message may have come with another
  /// size.
  static constexpr std::chrono::milliseconds kInspection{1};

  const int rank_;
  const Tags tags_;
  AbortFlag aborted_;
  bool closed_ = false;
  SelfLink self_;
  std::vector<PeerState> peers_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Channel>> channels_;
  std::vector<std::unique_ptr<Op>> ops_;  ///< owns every Op, busy or free
  std::vector<Op*> free_;
  std::vector<Op*> busy_;
  std::deque<Op*> waiting_receives_;
  std::vector<int> waiting_peers_;  ///< peers whose `waiting` is not empty
  std::size_t receives_ = 0;        ///< number of unfinished receives
  Deadline next_inspection_ = Deadline::after(kInspection);
  std::byte nothing_{};  ///< the buffer of 0-byte messages
  Ticket goodbye_;       ///< the receive for any peer's goodbye
  bool listens_for_goodbye_ = false;
  Endpoint endpoint_;
  std::unique_ptr<OfiSleeper> sleeper_;
};

}  // namespace hccl::transport::ofi
