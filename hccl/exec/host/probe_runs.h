// Operations with which the probes of this room meet and agree, numbered alike on all ranks.
#pragma once

#include <functional>
#include <span>
#include <utility>

#include "hccl/exec/host/host_path.h"
#include "hccl/exec/trials.h"

namespace hccl::exec::host {

class ProbeRuns {
 public:
  /// `usual`: the ways in which ranks agree, whatever is tried meanwhile. `path` outlives it.
  ProbeRuns(HostPath& path, const Ways& usual) : path_(path), usual_(usual) {}

  Status run(const Call& call) { return path_.run(call, envelope(call, ++sequence_, 0)); }
  Status meet() {
    return run(Call());  // a barrier
  }
  /// Each number becomes the largest of all ranks.
  Status largest(std::span<double> numbers) {
    Call call;
    call.op = Op::kAllReduce;
    call.in = numbers.data();
    call.out = numbers.data();
    call.count = numbers.size();
    call.type = DataType::kFp64;
    call.reduce = ReduceOp::kMax;
    const Ways before = path_.ways();
    path_.set_ways(usual_);
    HCCL_RETURN_IF_ERROR(run(call));
    path_.set_ways(before);
    return {};
  }
  /// For Trials, which this must outlive.
  Trials::Ranks ranks(std::function<Trials::Clock::time_point()> now) {
    return {[this] { return meet(); },
            [this](std::span<double> numbers) { return largest(numbers); }, std::move(now)};
  }

 private:
  HostPath& path_;
  Ways usual_;
  std::uint64_t sequence_ = 0;
};

}  // namespace hccl::exec::host
