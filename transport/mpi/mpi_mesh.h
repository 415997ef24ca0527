// Messages over MPI point to point. MPI's collectives are not used.
//
// A receive is posted in MPI only when a probe has seen its message. So the sizes of the message
// and of the receive are known, and an aborted receive leaves nothing inside MPI. No other receive
// can take the message in between, because a tag names one sender, one receiver and one lane.
// (Matched probes would do the same more simply, but Open MPI 4.1 crashes when it receives a large
// matched message.)
#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hccl/base/deadline.h"
#include "hccl/base/waiter.h"
#include "transport/mpi/process.h"
#include "transport/mpi/rank_map.h"
#include "transport/nap_sleeper.h"
#include "transport/self_link.h"
#include "transport/transport.h"

namespace hccl::transport::mpi {

class MpiMesh final : public Mesh {
 public:
  MpiMesh(Process& process, std::shared_ptr<Group> group, RankMap rank_map, const OpenArgs& args)
      : process_(process),
        group_(std::move(group)),
        rank_map_(std::move(rank_map)),
        rank_(args.rank),
        size_(args.size),
        ends_by_abort_(!args.receives_connect),
        peers_(static_cast<std::size_t>(size_)) {}
  ~MpiMesh() override;

  std::string_view name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void send(Request& request, int peer, std::uint32_t lane,
            std::span<const std::byte> bytes) override;
  void recv(Request& request, int peer, std::uint32_t lane, std::span<std::byte> bytes) override;
  bool progress() override;
  Sleeper& sleeper() override { return sleeper_; }
  void abort(Status status) override;

 private:
  /// The time between two checks whether a peer has left.
  static constexpr std::chrono::milliseconds kHearing{1};

  /// Receives from one peer on one lane that wait for their message.
  struct Channel {
    int peer = 0;
    std::uint32_t lane = 0;
    RequestQueue waiting;
    bool listed = false;  ///< in listening_
  };
  /// A request that MPI works on; its MPI_Request has the same index in in_mpi_.
  struct Active {
    Request* request = nullptr;
    bool is_send = false;
    Status verdict;                        ///< the result if MPI reports success
    std::unique_ptr<std::byte[]> scratch;  ///< takes a message of another size
  };

  struct PeerState {
    bool contacted = false;  ///< a send to the peer or a receive from it was posted
    Status gone;             ///< success while the peer is there
  };

  bool match(Channel& channel);
  bool match_all();
  bool test_active();
  void finish_active(std::size_t place, int error);
  /// Tells the peers that no message follows, so that they do not wait for a time limit.
  void say_goodbye();
  bool hear_goodbyes();
  bool hear_goodbye(int peer);
  bool wind_up();
  void fail_all(const Status& why);
  void fail_waiting(const Status& why);

  Process& process_;
  std::shared_ptr<Group> group_;
  const RankMap rank_map_;
  const int rank_;
  const int size_;
  const bool ends_by_abort_;  ///< see plugin_abi.h
  AbortFlag aborted_;
  bool winding_up_ = false;
  Deadline wound_up_ = Deadline::never();
  SelfLink self_;
  std::vector<PeerState> peers_;
  Deadline next_hearing_ = Deadline::after(kHearing);
  std::unordered_map<std::uint64_t, std::unique_ptr<Channel>> channels_;
  std::vector<Channel*> listening_;  ///< channels with waiting receives
  std::vector<Active> active_;
  std::vector<MPI_Request> in_mpi_;
  std::vector<int> places_;
  std::vector<MPI_Status> statuses_;
  NapSleeper sleeper_;
};

/// Opens a mesh of processes that are in MPI_COMM_WORLD.
Result<std::unique_ptr<Mesh>> open(const OpenArgs& args);

}  // namespace hccl::transport::mpi
