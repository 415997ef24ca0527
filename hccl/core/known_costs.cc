#include "hccl/core/known_costs.h"

#include <algorithm>
#include <map>

#include "hccl/base/bytes.h"
#include "hccl/join/host.h"
#include "hccl/join/world.h"
#include "hccl/select/cost_file.h"

namespace hccl::core {
namespace {

/// The most bytes of an offer. The offer is part of a blob; the rest of the blob is for paths and
/// the configuration.
constexpr std::size_t kOfferBytes = join::World::kBlobCap - 16384;
constexpr std::size_t kPathCap = 4096;

}  // namespace

std::string KnownCosts::offer(const Config& config, const Logger& log) {
  if (config.tune_file.empty()) return {};
  const std::string cpu = join::cpu_model();
  std::string bytes;
  const auto there = select::read_costs(config.tune_file);
  if (!there.ok()) {
    log->warn(
        "HCCL_TUNE_FILE: {}; the built-in costs are used and the file stays as it is: remove the "
        "file to measure again",
        there.status().message());
  } else if (there.value()) {
    // Entries of other machines and other versions are not sent to the ranks.
    select::CostTable table = *there.value();
    std::erase_if(table.entries, [&](const select::CostEntry& each) {
      return each.key.cpu != cpu || each.key.library != HCCL_VERSION_TEXT;
    });
    for (; !table.entries.empty(); table.entries.erase(table.entries.begin())) {
      bytes = select::to_bytes(table).value();
      if (bytes.size() <= kOfferBytes) break;
    }
    if (table.entries.empty()) bytes.clear();
  }
  ByteWriter out;
  out.put(static_cast<std::uint8_t>(there.ok())).put_text(config.tune_file.substr(0, kPathCap));
  out.put_text(cpu).put_text(bytes);
  return out.take();
}

Result<std::shared_ptr<KnownCosts>> KnownCosts::accept(std::string_view offer) {
  auto known = std::make_shared<KnownCosts>();
  if (offer.empty()) return known;
  ByteReader in(offer);
  known->keeps_ = in.get<std::uint8_t>() != 0;
  known->path_ = in.get_text(kPathCap);
  known->cpu_ = in.get_text(select::CostTable::kLongestText);
  const std::string bytes = in.get_text(kOfferBytes);
  if (!in.finished()) return Status(Code::kInternal, "rank 0 sends its costs in another form");
  if (bytes.empty()) return known;
  HCCL_ASSIGN_OR_RETURN(known->table_, select::from_bytes(bytes));
  return known;
}

select::CostKey KnownCosts::key(const std::vector<int>& hosts, std::string_view transport,
                                bool shared_cores, bool kernel_copies) const {
  std::map<int, std::uint32_t> ranks;
  std::uint32_t most = 0;
  for (const int host : hosts) most = std::max(most, ++ranks[host]);
  return {HCCL_VERSION_TEXT,
          cpu_,
          std::string(transport),
          static_cast<std::uint32_t>(ranks.size()),
          most,
          shared_cores,
          kernel_copies};
}

bool KnownCosts::wants(const select::CostKey& key, bool local) const {
  const select::CostEntry* const entry = table_.find(key);
  return keeps_ &&
         (entry == nullptr || !(local ? entry->local.has_value() : entry->messages.has_value()));
}

void KnownCosts::add(const select::CostEntry& entry, bool is_root, const Logger& log) {
  table_.put(entry);
  fresh_.push_back(entry.key);
  if (!is_root) return;
  const Status kept = select::keep_costs(path_, entry);
  if (kept.ok()) {
    log->info("HCCL_TUNE_FILE: measured for {}; kept in {}", to_string(entry.key), path_);
  } else {
    log->warn(
        "HCCL_TUNE_FILE: the measured costs are used but not kept; the next job measures again: {}",
        kept.message());
  }
}

KnownCosts::Use KnownCosts::use(const select::CostKey& key) const {
  const select::CostEntry* entry = table_.find(key);
  if (entry != nullptr) {
    const bool now = std::find(fresh_.begin(), fresh_.end(), key) != fresh_.end();
    return {entry->messages ? &*entry->messages : nullptr,
            "from " + path_ + (now ? " (measured now)" : " (measured before)")};
  }
  entry = table_.nearest(key);
  if (entry == nullptr) return {nullptr, "default table"};
  return {&*entry->messages, "from " + path_ + " (measured for " + to_string(entry->key) + ")"};
}

}  // namespace hccl::core
