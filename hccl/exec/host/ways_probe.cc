#include "hccl/exec/host/ways_probe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "hccl/exec/host/probe_runs.h"

namespace hccl::exec::host {
namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::array<std::uint64_t, 8> kSizes = {
    1 * kKiB, 4 * kKiB, 16 * kKiB, 64 * kKiB, 256 * kKiB, 1024 * kKiB, 4096 * kKiB, 16384 * kKiB};
constexpr std::array kCompared = {Way::kRing, Way::kStage, Way::kChain,
                                  Way::kCma,  Way::kPull,  Way::kPush};
constexpr std::array<std::size_t, 3> kChunks = {64 * kKiB, 128 * kKiB, 512 * kKiB};
/// Chunks are compared on inputs of several of them, but not on the longest.
constexpr std::uint64_t kChunksFrom = 1024 * kKiB;
constexpr std::uint64_t kChunksTo = 4096 * kKiB;
constexpr std::uint64_t kRowBytes = 256 * kKiB;
constexpr std::uint64_t kMostInARow = 64;
constexpr std::uint64_t kMostPrivate = 4096 * kKiB;

// The numbers that lead an allreduce of any size into this way.
Ways only(Way way, Ways ways) {
  constexpr std::size_t kAny = ~std::size_t{0};
  ways.ring_most = way == Way::kRing ? Ways::kMostInRing : 0;
  ways.whole_most = 0;
  ways.chain_from = way == Way::kChain ? 1 : 0;
  ways.cma_folds_from = way == Way::kCma ? 1 : 0;
  ways.cma_folds_most = kAny;
  ways.stage_most = way == Way::kStage ? kAny : 0;
  ways.pull_most = way == Way::kPull ? kAny : 0;
  return ways;
}

// A rank's vector, in device memory if there is any.
class Vector {
 public:
  Vector(memory::Heap* heap, std::size_t bytes) {
    if (heap != nullptr) {
      if (const auto memory = heap->allocate(bytes); memory.ok()) {
        heap_ = heap;
        data_ = static_cast<std::byte*>(*memory);
      }
    }
    // The others see in the posts that it is private, so this rank alone need not say it.
    if (data_ == nullptr) {
      private_.resize(bytes);
      data_ = private_.data();
    }
    std::fill_n(data_, bytes, std::byte{0});
  }
  ~Vector() {
    if (heap_ != nullptr) static_cast<void>(heap_->free(data_));
  }
  Vector(const Vector&) = delete;
  Vector& operator=(const Vector&) = delete;
  std::byte* data() { return data_; }

 private:
  memory::Heap* heap_ = nullptr;
  std::byte* data_ = nullptr;
  std::vector<std::byte> private_;
};

class Probe {
 public:
  Probe(HostPath& path, memory::Heap* heap, const Ways& defaults, std::chrono::nanoseconds budget,
        std::function<Trials::Clock::time_point()> now)
      : path_(path),
        heap_(heap),
        defaults_(defaults),
        runs_(path, defaults),
        trials_(budget, runs_.ranks(std::move(now))) {}

  Result<std::vector<WaySample>> measure() {
    for (const std::uint64_t bytes : kSizes) {
      if (bytes <= path_.posted_most()) continue;
      Vector device(heap_, bytes);
      HCCL_RETURN_IF_ERROR(measure(true, device, bytes));
      if (bytes > kMostPrivate) continue;
      Vector ordinary(nullptr, bytes);
      HCCL_RETURN_IF_ERROR(measure(false, ordinary, bytes));
    }
    path_.set_ways(defaults_);
    return std::move(samples_);
  }

 private:
  Status measure(bool reachable, Vector& vector, std::uint64_t bytes) {
    for (const Way way : kCompared) {
      if (way == Way::kRing && bytes > Ways::kMostInRing) continue;
      if ((way == Way::kPull || way == Way::kPush) && !reachable) continue;
      if ((way == Way::kChain || way == Way::kCma) && reachable) continue;
      // Far from where these could be best.
      if (way >= Way::kStage && bytes <= kKiB) continue;
      if (way != Way::kStage) {
        HCCL_RETURN_IF_ERROR(measure(reachable, vector, bytes, way, defaults_.chunk));
        continue;
      }
      const bool compare = !reachable && bytes >= kChunksFrom && bytes <= kChunksTo;
      HCCL_RETURN_IF_ERROR(measure(reachable, vector, bytes, way, defaults_.chunk));
      for (const std::size_t chunk : kChunks) {
        if (!compare || chunk == defaults_.chunk) continue;
        HCCL_RETURN_IF_ERROR(measure(reachable, vector, bytes, way, chunk));
      }
    }
    return {};
  }

  Status measure(bool reachable, Vector& vector, std::uint64_t bytes, Way way, std::size_t chunk) {
    Ways ways = only(way, defaults_);
    ways.chunk = chunk;
    path_.set_ways(ways);
    Call call;
    call.op = Op::kAllReduce;
    call.in = vector.data();
    call.out = vector.data();
    call.count = bytes / size_of(call.type);
    Last& last = last_[{reachable, way, chunk}];
    const double expected =
        last.ns * (last.bytes == 0 ? 0 : static_cast<double>(bytes) / last.bytes);
    // Short operations are over before the ranks have all seen that they began: many in a row. As
    // in a program, a rank writes its input anew before each, and the ranks meet: back to back they
    // would overlap. What that takes is in all samples alike.
    const std::uint64_t times = std::clamp<std::uint64_t>(kRowBytes / bytes, 1, kMostInARow);
    const auto write = [&] { std::fill_n(vector.data(), bytes, std::byte{1}); };
    const auto row = [&] {
      for (std::uint64_t i = 0; i < times; ++i) {
        if (i != 0) {
          HCCL_RETURN_IF_ERROR(runs_.meet());
          write();
          HCCL_RETURN_IF_ERROR(runs_.meet());
        }
        HCCL_RETURN_IF_ERROR(runs_.run(call));
      }
      taken_ = path_.way();
      return Status();
    };
    HCCL_ASSIGN_OR_RETURN(auto ns, trials_.time(expected * static_cast<double>(times), write, row));
    if (!ns) return {};
    *ns /= static_cast<double>(times);
    last = {*ns, static_cast<double>(bytes)};
    // Without device memory on every rank the ways that need it are not taken.
    if (taken_ != way) return {};
    samples_.push_back({way, reachable, bytes, way == Way::kStage ? chunk : 0,
                        static_cast<std::uint64_t>(std::llround(std::max(*ns, 1.0)))});
    return {};
  }

  struct Last {
    double ns = 0;
    double bytes = 0;
  };

  HostPath& path_;
  memory::Heap* heap_;
  Ways defaults_;
  ProbeRuns runs_;
  Trials trials_;
  Way taken_ = Way::kPost;
  std::map<std::tuple<bool, Way, std::size_t>, Last> last_;
  std::vector<WaySample> samples_;
};

}  // namespace

Result<std::vector<WaySample>> measure_ways(HostPath& path, memory::Heap* heap,
                                            const Ways& defaults, std::chrono::nanoseconds budget,
                                            std::function<Trials::Clock::time_point()> now) {
  return Probe(path, heap, defaults, budget, std::move(now)).measure();
}

}  // namespace hccl::exec::host
