// The one engine: runs any schedule over any transport. It cuts the data into slices and runs them
// on lanes side by side, exchanges envelopes before data, and owns deadlines and aborts.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "hccl/base/deadline.h"
#include "hccl/base/wait.h"
#include "hccl/exec/call.h"
#include "hccl/schedule/algorithm.h"
#include "transport/transport.h"

namespace hccl::exec {

class Lane;

/// What bounds one run.
struct Limits {
  Deadline deadline = Deadline::never();
  const AbortFlag* abort = nullptr;
  WaitPolicy policy;
  /// Called while the run waits, about once a second and before a deadline passes, with its
  /// envelope in words and the peers whose own has not come; may be empty.
  std::function<void(const std::string& what, const std::vector<int>& awaited)> stalled;
};

/// Belongs to one communicator and is used by one thread at a time. Staging memory is allocated at
/// the first operation of its kind and kept: at most `staging_bytes` for slots of schedules, and a
/// few messages a lane.
class Executor {
 public:
  Executor(transport::Mesh& mesh, std::size_t staging_bytes);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Runs a collective to its end. kPara: the ranks disagree; kRemote: a rank died; kTimeout. A
  /// failure aborts the mesh, so that no request touches the buffers any more: it is the last run.
  Status run(const Call& call, const schedule::Choice& choice, std::uint64_t sequence,
             const Limits& limits);

  /// Point to point. Both sides learn of a mismatch; send returns when the receiver has joined.
  Status send(int peer, const void* data, std::uint64_t count, DataType type,
              std::uint64_t sequence, const Limits& limits);
  Status recv(int peer, void* data, std::uint64_t count, DataType type, std::uint64_t sequence,
              const Limits& limits);

 private:
  Status run_agreement(std::uint32_t lane, const Envelope& mine, const Limits& limits);
  Status point_to_point(int peer, std::byte* data, std::uint64_t count, DataType type,
                        const Envelope& mine, const Limits& limits);
  Status drive(std::size_t lanes, const Envelope& mine, const Limits& limits);
  /// The peers that this run has had no envelope of, in order.
  std::vector<int> awaited(std::size_t lanes) const;
  /// A schedule of this rank, and the most scratch slots that any rank's needs.
  struct Plan {
    schedule::Schedule schedule;
    int most_slots = 0;
  };
  const Plan& plan_for(const schedule::Algorithm& algorithm, int root, int depth);
  Status run_lanes(const Call& call, const schedule::Choice& choice, std::uint64_t sequence,
                   const Limits& limits);
  Status end(Status status);
  std::byte* scratch(std::size_t bytes);

  transport::Mesh& mesh_;
  std::size_t staging_bytes_;
  std::map<std::tuple<const void*, int, int>, Plan> plans_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::unique_ptr<std::byte[]> scratch_;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace hccl::exec
