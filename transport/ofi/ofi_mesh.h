// Messages over libfabric: one reliable-datagram endpoint a mesh, tagged messages, one completion
// queue.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hccl/base/wait.h"
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
  std::unique_ptr<Region> register_memory(std::span<std::byte> bytes) override;
  void abort(Status status) override;

 private:
  class RegisteredRegion;

  /// One send or receive that libfabric has or will have. `context` is libfabric's while it has it.
  struct Op {
    fi_context2 context{};  // first, so that a completion's context is the Op's address
    Request* request = nullptr;
    bool is_send = false;
    bool posted = false;    ///< libfabric has it
    Fid<fid_mr> region;     ///< memory registered for this one operation
    std::size_t place = 0;  ///< in busy_
  };
  struct Peer {
    fi_addr_t address = FI_ADDR_NOTAVAIL;
    bool contacted = false;   ///< something was sent to it or awaited from it
    Status dead;              ///< success while it lives
    std::deque<Op*> waiting;  ///< sends that libfabric had no room for, in order
  };

  OfiMesh(Endpoint endpoint, std::unique_ptr<OfiSleeper> sleeper, int rank, const Tags& tags);
  /// True, and the request has failed, if there is no such peer or lane or the mesh is aborted.
  bool refused(Request& request, int peer, std::uint32_t lane);
  void post_send(Request& request);
  Op& take_op(Request& request, bool is_send);
  void finish(Op& op, Status status);

  /// Hands an Op to libfabric. False if it has no room now; a failure finishes the Op.
  bool try_post(Op& op);
  Result<void*> descriptor(Op& op);
  bool post_waiting();
  bool read_completions();
  void complete(const fi_cq_tagged_entry& entry);
  void complete_with_error(const fi_cq_err_entry& entry);
  /// Fails everything that involves a peer, now and from now on.
  void bury(int peer, const Status& why);
  void close_down(const Status& why);
  /// Tells the peers that nothing more will come, so that they need not wait for a time limit.
  void say_goodbye();
  void listen_for_goodbye();
  void note_waiting();

  const int rank_;
  const Tags tags_;
  AbortFlag aborted_;
  bool closed_ = false;
  SelfLink self_;
  // By first byte; only if the provider wants memory registered.
  std::map<std::byte*, std::pair<std::size_t, fid_mr*>> regions_;
  std::vector<Peer> peers_;
  std::vector<std::unique_ptr<Op>> ops_;  ///< all that were ever needed at once
  std::vector<Op*> free_;
  std::vector<Op*> busy_;
  std::deque<Op*> waiting_receives_;
  std::vector<int> waiting_peers_;  ///< those whose `waiting` is not empty
  std::byte nothing_{};             ///< where a 0-byte message lies
  fi_context2 goodbye_{};           ///< of the receive that any peer's goodbye ends
  bool listens_for_goodbye_ = false;
  Endpoint endpoint_;
  std::unique_ptr<OfiSleeper> sleeper_;
};

}  // namespace hccl::transport::ofi
