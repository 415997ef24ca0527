#include "hccl/select/costs.h"

#include <algorithm>
#include <cmath>

#include "hccl/select/points.h"

namespace hccl::select {
namespace {

constexpr std::size_t kLeastChunk = std::size_t{4} << 10;
constexpr std::size_t kMostChunk = std::size_t{512} << 10;
constexpr std::uint32_t kMostRanks = 1u << 20;

std::string counted(std::uint32_t number, const char* word) {
  return std::to_string(number) + " " + word + (number == 1 ? "" : "s");
}

double apart(std::uint32_t a, std::uint32_t b) {
  return std::abs(std::log2(std::max(1u, a)) - std::log2(std::max(1u, b)));
}

Status wrong(const std::string& what) { return Status(Code::kPara, "not a cost table: " + what); }

Status check(const LocalCosts& costs) {
  if (costs.tuning.chunk < kLeastChunk || costs.tuning.chunk > kMostChunk) {
    return wrong("a chunk of " + std::to_string(costs.tuning.chunk) +
                 " bytes, expected 4096 to 524288");
  }
  if (costs.curves.size() > CostTable::kMostCurves) return wrong("more than 256 curves");
  for (const Curve& curve : costs.curves) {
    const std::string where = "the curve of " + curve.algorithm + ": ";
    if (curve.algorithm.empty() || curve.algorithm.size() > CostTable::kLongestText) {
      return wrong("a curve names an algorithm in 1 to 256 bytes");
    }
    if (static_cast<std::size_t>(curve.kind) >= kKinds) return wrong(where + "its kind is unknown");
    const std::string bad = fault(curve.points, &Curve::Point::ns);
    if (!bad.empty()) return wrong(where + bad);
  }
  return {};
}

}  // namespace

CurveKind kind_of(Op op) {
  switch (op) {
    case Op::kAllReduce:
    case Op::kReduce:
    case Op::kBarrier:
      return CurveKind::kFold;
    case Op::kReduceScatter:
    case Op::kReduceScatterV:
      return CurveKind::kPart;
    case Op::kBroadcast:
      return CurveKind::kBroadcast;
    default:
      return CurveKind::kMove;
  }
}

double Curve::ns(std::uint64_t bytes) const {
  return time_at(points, static_cast<double>(bytes), &Point::ns);
}

const Curve* LocalCosts::find(std::string_view algorithm, CurveKind kind) const {
  for (const Curve& curve : curves) {
    if (curve.kind == kind && curve.algorithm == algorithm) return &curve;
  }
  return kind == CurveKind::kPart ? find(algorithm, CurveKind::kFold) : nullptr;
}

bool LocalCosts::operator==(const LocalCosts& other) const {
  return curves == other.curves && tuning.chunk == other.tuning.chunk &&
         tuning.stream_from == other.tuning.stream_from;
}

namespace {

// The ratio of the measured time of a point to its time in the reference.
struct Ratio {
  const Curve& curve;
  double bytes;
  double ratio;
};

std::vector<Ratio> ratios(const LocalCosts& reference, const std::vector<Curve>& measured) {
  std::vector<Ratio> all;
  for (const Curve& curve : measured) {
    const Curve* const known = reference.find(curve.algorithm, curve.kind);
    if (known == nullptr) continue;
    for (const Curve::Point& point : curve.points) {
      all.push_back({curve, static_cast<double>(point.bytes),
                     static_cast<double>(point.ns) / known->ns(point.bytes)});
    }
  }
  return all;
}

double mean(const std::vector<Ratio>& all) {
  double sum = 0;
  for (const Ratio& each : all) sum += std::log(each.ratio);
  return all.empty() ? 1 : std::exp(sum / static_cast<double>(all.size()));
}

}  // namespace

double slowdown(const LocalCosts& reference, const std::vector<Curve>& measured) {
  return mean(ratios(reference, measured));
}

LocalCosts fit(LocalCosts base, const LocalCosts& reference, const std::vector<Curve>& measured) {
  const std::vector<Ratio> all = ratios(reference, measured);
  const double usual = mean(all);
  for (Curve& curve : base.curves) {
    std::uint64_t last = 1;
    for (Curve::Point& point : curve.points) {
      // The ratio at the nearest measured size.
      double ratio = usual;
      double least = HUGE_VAL;
      for (const Ratio& each : all) {
        if (each.curve.algorithm != curve.algorithm || each.curve.kind != curve.kind) continue;
        const double distance =
            std::abs(std::log2((each.bytes + 1) / (static_cast<double>(point.bytes) + 1)));
        if (distance >= least) continue;
        least = distance;
        ratio = each.ratio;
      }
      const double ns =
          std::min(static_cast<double>(point.ns) * ratio, static_cast<double>(kMostNs));
      point.ns = last = std::max(last, static_cast<std::uint64_t>(std::llround(ns)));
    }
  }
  for (Curve curve : measured) {
    const auto standard = std::find_if(measured.begin(), measured.end(), [&](const Curve& each) {
      return each.algorithm == kStandard && each.kind == curve.kind;
    });
    const Curve* const here = base.find(kStandard, curve.kind);
    if (base.find(curve.algorithm, curve.kind) != nullptr || here == nullptr ||
        standard == measured.end()) {
      continue;
    }
    std::uint64_t last = 1;
    for (Curve::Point& point : curve.points) {
      const double ns =
          static_cast<double>(point.ns) * here->ns(point.bytes) / standard->ns(point.bytes);
      point.ns = last =
          std::max(last, static_cast<std::uint64_t>(std::llround(std::min(ns, double{kMostNs}))));
    }
    base.curves.push_back(std::move(curve));
  }
  return base;
}

std::string to_string(const CostKey& key) {
  return key.transport + ", " + counted(key.hosts, "host") + " with " +
         counted(key.ranks_per_host, "rank") + (key.hosts == 1 ? "" : " each") +
         (key.shared_cores ? " that share cores" : "") +
         (key.kernel_copies ? ", the kernel may copy" : "") + ", " + key.cpu + ", hccl " +
         key.library;
}

const CostEntry* CostTable::find(const CostKey& key) const {
  const auto at = std::find_if(entries.begin(), entries.end(),
                               [&](const CostEntry& each) { return each.key == key; });
  return at == entries.end() ? nullptr : &*at;
}

const CostEntry* CostTable::nearest(const CostKey& key) const {
  const CostEntry* best = nullptr;
  double least = 0;
  for (const CostEntry& each : entries) {
    const CostKey& its = each.key;
    if (!each.messages || its.library != key.library || its.cpu != key.cpu ||
        its.transport != key.transport) {
      continue;
    }
    // A different number of hosts changes the costs more than a different number of ranks.
    const double distance = 2 * apart(its.hosts, key.hosts) +
                            apart(its.ranks_per_host, key.ranks_per_host) +
                            (its.shared_cores == key.shared_cores ? 0 : 0.5);
    if (best == nullptr || distance < least) {
      best = &each;
      least = distance;
    }
  }
  return best;
}

void CostTable::put(CostEntry entry) {
  std::erase_if(entries, [&](const CostEntry& each) { return each.key == entry.key; });
  if (entries.size() >= kMostEntries) {
    entries.erase(entries.begin(), entries.end() - static_cast<std::ptrdiff_t>(kMostEntries) + 1);
  }
  entries.push_back(std::move(entry));
}

Status CostTable::check() const {
  if (entries.size() > kMostEntries) return wrong("more than 256 entries");
  for (const CostEntry& entry : entries) {
    const CostKey& key = entry.key;
    for (const std::string* text : {&key.library, &key.cpu, &key.transport}) {
      if (text->empty() || text->size() > kLongestText) {
        return wrong("library, cpu and transport of a key have 1 to 256 bytes");
      }
    }
    for (const std::uint32_t number : {key.hosts, key.ranks_per_host}) {
      if (number == 0 || number > kMostRanks) return wrong("a key names 1 to 2^20 hosts and ranks");
    }
    if (entry.messages) HCCL_RETURN_IF_ERROR(entry.messages->check());
    if (entry.local) HCCL_RETURN_IF_ERROR(select::check(*entry.local));
  }
  return {};
}

}  // namespace hccl::select
