// Runs operations whose blocks differ in length by direct exchange: every rank sends a block to
// every other rank, all at once.
#pragma once

#include <memory>
#include <vector>

#include "hccl/base/call.h"
#include "hccl/exec/activity.h"
#include "hccl/exec/flow.h"
#include "hccl/exec/lane.h"

namespace hccl::exec {

/// One run of reducescatterv, allgatherv or alltoallv. A reducing rank folds a piece of its block
/// when the piece has arrived from all ranks. One fold takes all inputs in rank order, so the
/// result does not depend on how the block is cut into pieces.
class DirectV final : public Activity {
 public:
  explicit DirectV(transport::Mesh& mesh) : mesh_(mesh), agreement_(mesh) {}

  /// Returns the length in bytes of the pieces that a reducing rank receives. All staging stays
  /// within `staging_bytes`, except with so many ranks that pieces would be tiny. The result is the
  /// same on all ranks.
  static std::size_t piece_bytes(std::size_t staging_bytes, int size);
  /// Returns the number of bytes of `staging` that begin() needs.
  static std::size_t staging_wanted(const Call& call, std::size_t piece, int size);

  /// Starts a new run. The call's blocks and `barrier`, a schedule of this rank, must outlive the
  /// run.
  void begin(const Call& call, const Envelope& mine, std::byte* staging, std::size_t piece,
             const schedule::Schedule& barrier);
  Status advance() override;
  bool done() const override { return done_; }
  void late(std::set<int>& peers) const override;

 private:
  /// The most pieces of one peer's input that may be under way or wait to be folded.
  static constexpr std::size_t kPieces = 2;

  struct PeerExchange {
    int rank = 0;
    Envelope sent;
    Envelope received;
    transport::Request hello_out;
    transport::Request hello_in;
    bool heard = false;  // the envelope has arrived and equals this rank's envelope
    Flow out;
    Flow in;
  };

  void open(PeerExchange& peer);
  void copy_own();
  Status check_hello(PeerExchange& peer) const;
  Status check_hellos();
  void post_pieces();
  bool fold_pieces();
  Status agree();
  std::size_t piece_length(std::size_t number) const;
  std::byte* slot(std::size_t peer, std::size_t number) const;

  transport::Mesh& mesh_;
  Call call_;
  Envelope mine_;
  std::size_t element_ = 1;
  std::size_t piece_ = 0;
  std::byte* staging_ = nullptr;
  const schedule::Schedule* barrier_ = nullptr;
  // In rank order, beginning with the rank after this rank; kept between runs.
  std::vector<std::unique_ptr<PeerExchange>> peers_;
  std::vector<const std::byte*> inputs_;
  std::size_t pieces_ = 0;  // pieces of this rank's block
  std::size_t posted_ = 0;
  std::size_t folded_ = 0;
  bool all_heard_ = false;
  Lane agreement_;
  bool agreeing_ = false;
  bool done_ = false;
};

}  // namespace hccl::exec
