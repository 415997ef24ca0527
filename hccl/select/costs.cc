#include "hccl/select/costs.h"

#include <algorithm>
#include <cmath>

#include "hccl/base/bytes.h"

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
    if (static_cast<std::size_t>(curve.kind) >= kKinds) return wrong(where + "of no known kind");
    if (curve.points.empty() || curve.points.size() > CostTable::kMostPoints) {
      return wrong(where + "1 to 64 points are expected");
    }
    Curve::Point last;
    for (const Curve::Point& point : curve.points) {
      if (point.ns == 0 || point.ns > MessageCosts::kMostNs) {
        return wrong(where + "a time of 1 ns to an hour is expected");
      }
      const bool first = &point == &curve.points.front();
      if (point.bytes > std::uint64_t{1} << 40 || (!first && point.bytes <= last.bytes)) {
        return wrong(where + "bytes must rise, up to 2^40");
      }
      if (point.ns < last.ns) return wrong(where + "times must not fall");
      last = point;
    }
  }
  return {};
}

}  // namespace

Kind kind_of(Op op) {
  switch (op) {
    case Op::kAllReduce:
    case Op::kReduce:
    case Op::kReduceScatter:
    case Op::kReduceScatterV:
    case Op::kBarrier:
      return Kind::kFold;
    case Op::kBroadcast:
      return Kind::kBroadcast;
    default:
      return Kind::kMove;
  }
}

double Curve::ns(std::uint64_t bytes) const {
  const auto at = static_cast<double>(bytes);
  if (bytes <= points.front().bytes) return static_cast<double>(points.front().ns);
  if (points.size() == 1) {
    // One point says nothing of the pace; that all of it is pace is the careful guess.
    return static_cast<double>(points.front().ns) * at /
           static_cast<double>(std::max<std::uint64_t>(1, points.front().bytes));
  }
  std::size_t above = 1;
  while (above + 1 < points.size() && points[above].bytes < bytes) ++above;
  const Point &low = points[above - 1], &high = points[above];
  const double pace =
      static_cast<double>(high.ns - low.ns) / static_cast<double>(high.bytes - low.bytes);
  return static_cast<double>(low.ns) + pace * (at - static_cast<double>(low.bytes));
}

const Curve* LocalCosts::find(std::string_view algorithm, Kind kind) const {
  for (const Curve& curve : curves) {
    if (curve.kind == kind && curve.algorithm == algorithm) return &curve;
  }
  return nullptr;
}

bool LocalCosts::operator==(const LocalCosts& other) const {
  return curves == other.curves && tuning.chunk == other.tuning.chunk &&
         tuning.stream_from == other.tuning.stream_from;
}

LocalCosts fit(LocalCosts base, const LocalCosts& reference, const std::vector<Curve>& measured) {
  struct Ratio {
    std::uint64_t bytes;
    double ratio;
  };
  const auto ratios_of = [&](const Curve& curve) {
    std::vector<Ratio> ratios;
    const Curve* const known = reference.find(curve.algorithm, curve.kind);
    if (known == nullptr) return ratios;
    for (const Curve::Point& point : curve.points) {
      ratios.push_back({point.bytes, static_cast<double>(point.ns) / known->ns(point.bytes)});
    }
    return ratios;
  };
  double sum = 0;
  int number = 0;
  for (const Curve& curve : measured) {
    for (const Ratio& each : ratios_of(curve)) {
      sum += std::log(each.ratio);
      ++number;
    }
  }
  const double mean = number == 0 ? 1 : std::exp(sum / number);
  for (Curve& curve : base.curves) {
    std::vector<Ratio> ratios;
    for (const Curve& each : measured) {
      if (each.algorithm == curve.algorithm && each.kind == curve.kind) ratios = ratios_of(each);
    }
    std::uint64_t last = 1;
    for (Curve::Point& point : curve.points) {
      // That of the nearest size that was measured.
      double ratio = mean;
      double least = HUGE_VAL;
      for (const Ratio& each : ratios) {
        const double distance = std::abs(std::log2(static_cast<double>(each.bytes) + 1) -
                                         std::log2(static_cast<double>(point.bytes) + 1));
        if (distance < least) {
          least = distance;
          ratio = each.ratio;
        }
      }
      const double ns = std::min(static_cast<double>(point.ns) * ratio,
                                 static_cast<double>(MessageCosts::kMostNs));
      point.ns = last = std::max(last, static_cast<std::uint64_t>(std::llround(ns)));
    }
  }
  return base;
}

std::string words(const CostKey& key) {
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
    // Another number of hosts changes more than another number of ranks.
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

// ---- as bytes ----

namespace {

// One description of the bytes for both directions.
class Writer {
 public:
  template <class T>
  void operator()(T& value) {
    out.put(value);
  }
  void operator()(std::string& text) { out.put_text(text); }
  template <class T, class Each>
  void list(std::vector<T>& items, Each&& each) {
    out.put(static_cast<std::uint32_t>(items.size()));
    for (T& item : items) each(item);
  }
  template <class T, class Each>
  void maybe(std::optional<T>& item, Each&& each) {
    out.put(static_cast<std::uint8_t>(item.has_value()));
    if (item) each(*item);
  }
  ByteWriter out;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : in(bytes) {}
  template <class T>
  void operator()(T& value) {
    value = in.get<T>();
  }
  void operator()(bool& value) { value = in.get<std::uint8_t>() != 0; }
  void operator()(std::string& text) { text = in.get_text(CostTable::kLongestText); }
  template <class T, class Each>
  void list(std::vector<T>& items, Each&& each) {
    for (auto left = in.get<std::uint32_t>(); left > 0 && in.ok(); --left) {
      each(items.emplace_back());
    }
  }
  template <class T, class Each>
  void maybe(std::optional<T>& item, Each&& each) {
    if (in.get<std::uint8_t>() != 0) each(item.emplace());
  }
  ByteReader in;
};

template <class Io>
void describe(Io& io, CostTable& table) {
  io.list(table.entries, [&](CostEntry& entry) {
    CostKey& key = entry.key;
    for (std::string* text : {&key.library, &key.cpu, &key.transport}) io(*text);
    for (std::uint32_t* number : {&key.hosts, &key.ranks_per_host}) io(*number);
    for (bool* flag : {&key.shared_cores, &key.kernel_copies}) io(*flag);
    io.maybe(entry.local, [&](LocalCosts& local) {
      for (std::size_t* number : {&local.tuning.chunk, &local.tuning.stream_from}) io(*number);
      io.list(local.curves, [&](Curve& curve) {
        io(curve.algorithm);
        io(curve.kind);
        io.list(curve.points, [&](Curve::Point& point) { io(point); });
      });
    });
    io.maybe(entry.messages, [&](MessageCosts& messages) {
      io.list(messages.steps, [&](MessageCosts::Step& step) { io(step); });
      io(messages.fold_ns_per_mib);
      io.list(messages.lanes, [&](MessageCosts::Lanes& lanes) { io(lanes); });
    });
  });
}

}  // namespace

std::string to_bytes(const CostTable& table) {
  Writer writer;
  CostTable copy = table;
  describe(writer, copy);
  return writer.out.take();
}

Result<CostTable> from_bytes(std::string_view bytes) {
  Reader reader(bytes);
  CostTable table;
  describe(reader, table);
  if (!reader.in.finished()) return Status(Code::kInternal, "a cost table that ends too early");
  HCCL_RETURN_IF_ERROR(table.check());
  return table;
}

}  // namespace hccl::select
