// Stand-in until the selector by costs is here.
#pragma once
#include <string>
#include "hccl/local/algorithm.h"
namespace hccl::select {
struct LocalChoice {
  const local::Algorithm* algorithm = nullptr;
  std::string reason;
};
class LocalSelector {
 public:
  explicit LocalSelector(local::Topology t) : t_(t) {
    tuning_.chunk = t.shared_cores ? 512 << 10 : t.ranks == 2 ? 256 << 10 : 128 << 10;
  }
  LocalChoice eager(Op op, DataType, std::uint64_t bytes) const {
    const std::uint64_t n = static_cast<std::uint64_t>(t_.ranks);
    if (bytes <= 56) return {local::find(op, "inline"), "short"};
    const std::uint64_t most = t_.shared_cores ? (n <= 4 ? 4096 : std::max<std::uint64_t>(2048, std::min<std::uint64_t>(16384, (4096 << 10) / (n * n)))) : (64 << 10) / n;
    return {bytes <= most ? local::find(op, "slots") : nullptr, "short"};
  }
  LocalChoice rendezvous(const local::Case& c) const {
    std::string names[] = {"push", "pull", t_.shared_cores && c.bytes > (128 << 10) ? "turns" : "cma", c.bytes > (64 << 10) ? "staged_slices" : "staged", "staged"};
    const bool folds = c.op == Op::kAllReduce || c.op == Op::kReduce || c.op == Op::kReduceScatter || c.op == Op::kReduceScatterV;
    for (auto& name : names) {
      if (name == "cma" && (c.bytes < (folds ? 128 << 10 : 64 << 10) || c.bytes > (32 << 20))) continue;
      const auto* a = local::find(c.op, name);
      if (a != nullptr && a->refuse(c, t_).empty()) return {a, ""};
    }
    return {local::find(c.op, "staged"), ""};
  }
  const local::Tuning& tuning() const { return tuning_; }
  void set_stream(std::size_t from) { tuning_.stream_from = from; }
 private:
  local::Topology t_;
  local::Tuning tuning_;
};
}  // namespace hccl::select
