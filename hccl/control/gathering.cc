#include "hccl/control/gathering.h"

#include <algorithm>

namespace hccl::control {
namespace {

using std::chrono::nanoseconds;

std::optional<std::string> get(ByteReader& in, std::uint32_t, const std::string*) {
  std::string text = in.get_text(kAgreementCap);
  return in.ok() ? std::optional(std::move(text)) : std::nullopt;
}
std::optional<RankSet> get(ByteReader& in, std::uint32_t size, const RankSet*) {
  return get_ranks(in, size);
}
void put(ByteWriter& out, const std::string& text) { out.put_text(text); }

template <class T>
void put(ByteWriter& out, const Statements<T>& all) {
  out.put(static_cast<std::uint8_t>(all.first.has_value() + all.other.has_value()));
  for (const auto& one : {all.first, all.other}) {
    if (!one) continue;
    out.put(one->first);
    put(out, one->second);
  }
}
template <class T>
bool get(ByteReader& in, std::uint32_t size, Statements<T>& all) {
  for (int number = std::min<int>(in.get<std::uint8_t>(), 2); number > 0; --number) {
    const auto rank = in.get<std::uint32_t>();
    const std::optional<T> statement = get(in, size, static_cast<const T*>(nullptr));
    if (!statement || rank >= size) return false;
    all.add({rank, *statement});
  }
  return in.ok();
}

}  // namespace

void Gathering::merge(const Gathering& more) {
  arrived |= more.arrived;
  members.merge(more.members);
  agreement.merge(more.agreement);
  flags &= more.flags;
  patience = std::min(patience, more.patience);
  waited = std::max(waited, more.waited);
  for (const auto& [rank, blob] : more.blobs) {
    const auto [at, added] = blobs.try_emplace(rank, blob);
    if (!added) at->second = std::min(at->second, blob);
  }
  for (const auto& [times, ranks] : more.refused) refused[times] |= ranks;
}

RankSet Gathering::named() const {
  RankSet all = members.first ? members.first->second : RankSet();
  return members.other ? all | members.other->second : all;
}

void put(ByteWriter& out, const Gathering& sum) {
  put(out, sum.arrived);
  put(out, sum.members);
  put(out, sum.agreement);
  out.put(sum.flags).put(std::int64_t{sum.patience.count()});
  out.put(std::int64_t{sum.waited.count()});
  out.put(static_cast<std::uint32_t>(sum.blobs.size()));
  for (const auto& [rank, blob] : sum.blobs) out.put(rank).put_text(blob);
  out.put(static_cast<std::uint32_t>(sum.refused.size()));
  for (const auto& [times, ranks] : sum.refused) put(out.put(times), ranks);
}

std::optional<Gathering> get_gathering(ByteReader& in, std::uint32_t size) {
  Gathering sum;
  auto arrived = get_ranks(in, size);
  if (!arrived || !get(in, size, sum.members) || !get(in, size, sum.agreement)) return {};
  sum.arrived = std::move(*arrived);
  sum.flags = in.get<std::uint32_t>();
  sum.patience = nanoseconds(std::max<std::int64_t>(0, in.get<std::int64_t>()));
  sum.waited = nanoseconds(std::max<std::int64_t>(0, in.get<std::int64_t>()));
  for (auto number = in.get<std::uint32_t>(); number > 0; --number) {
    const auto rank = in.get<std::uint32_t>();
    std::string blob = in.get_text(kBlobCap);
    if (!in.ok() || !sum.arrived.contains(rank)) return {};
    sum.blobs.insert_or_assign(rank, std::move(blob));
  }
  for (auto sets = in.get<std::uint32_t>(); sets > 0; --sets) {
    const auto times = in.get<std::uint32_t>();
    const auto ranks = get_ranks(in, size);
    if (!ranks || ranks->empty() || times > kRefusedCap) return {};
    sum.refused[times] |= *ranks;
  }
  return in.ok() ? std::optional(std::move(sum)) : std::nullopt;
}

}  // namespace hccl::control
