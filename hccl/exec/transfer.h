// Sends and receives between two ranks. Each send and receive exchanges envelopes before its data.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "hccl/base/call.h"
#include "hccl/exec/activity.h"
#include "hccl/exec/flow.h"

namespace hccl::exec {

/// One send or receive of a rank.
struct Transfer {
  bool sending = false;
  int peer = 0;
  void* data = nullptr;  ///< a send only reads it
  std::uint64_t count = 0;
  DataType type = DataType::kFp32;
  /// The srTag of HcomSend and HcomReceive, 0 elsewhere. Both ranks of a transfer must give the
  /// same tag.
  std::uint32_t tag = 0;
  /// The number of this transfer among all transfers in the same direction between the two ranks.
  std::uint64_t sequence = 0;
};

Envelope envelope(const Transfer& transfer);

/// Checks the transfers of the caller to itself: the k-th send must have the same count and type as
/// the k-th receive.
Status pair_self(std::span<const Transfer> transfers, int self);

/// Transfers that run together. Transfers with the same peer and direction run in their order, all
/// others concurrently. A transfer of the caller to itself is a copy.
class Batch final : public Activity {
 public:
  explicit Batch(transport::Mesh& mesh) : mesh_(mesh) {}

  /// Starts a new run. The transfers must outlive the run, and pair_self() must have succeeded.
  void begin(std::span<const Transfer> transfers);
  Status advance() override;
  bool done() const override { return running_ == 0; }
  void late(std::set<int>& peers) const override;
  /// Returns the transfers under way that the peer has not joined.
  std::vector<const Transfer*> late_transfers() const;

 private:
  // The transfers of one direction with one peer. At most one transfer of a chain runs at a time.
  struct Chain {
    int peer = 0;
    bool sending = false;
    std::vector<const Transfer*> transfers;
    std::size_t at = 0;
    bool started = false;
    Envelope mine;
    Envelope theirs;
    transport::Request hello_out;
    transport::Request hello_in;
    Flow flow;
  };

  Chain& chain(int peer, bool sending);
  void start(Chain& chain);
  Status check_hello(const Chain& chain) const;
  Status advance(Chain& chain);
  void copy_to_self(std::span<const Transfer> transfers) const;

  transport::Mesh& mesh_;
  std::vector<std::unique_ptr<Chain>> chains_;
  std::size_t used_ = 0;
  std::size_t running_ = 0;
};

}  // namespace hccl::exec
