#include "hccl/core/tuner.h"

#include <algorithm>
#include <map>

#include "hccl/base/bytes.h"
#include "hccl/core/tuning_file.h"
#include "hccl/join/host.h"
#include "hccl/join/wire.h"
#include "hccl/exec/host/ways_probe.h"
#include "hccl/exec/probe.h"

namespace hccl::core {
namespace {

/// For one communicator to be measured; with joining and the last operation, under a second.
constexpr std::chrono::milliseconds kBudget{600};
/// What fits into one rank's part of an exchange, beside paths and configuration.
constexpr std::size_t kOfferBytes = join::wire::kBlobCap - 16384;
constexpr std::size_t kPathCap = 4096;

}  // namespace

std::string Tuner::offer(const Config& config, const Logger& log) {
  if (config.tune_file.empty()) return {};
  Tuning tuning;
  bool keeps = true;
  const std::string cpu = join::cpu_model();
  auto there = read_tuning(config.tune_file);
  if (!there.ok()) {
    log->warn(
        "HCCL_TUNE_FILE: {}; the built-in defaults are used and the file stays as it is, "
        "remove it to measure again",
        there.status().message());
    keeps = false;
  } else if (there.value()) {
    tuning = std::move(*there.value());
    // Others' entries stay in the file.
    std::erase_if(tuning.entries, [&](const TuningEntry& each) {
      return each.key.cpu != cpu || each.key.library != HCCL_VERSION_TEXT;
    });
    for (TuningEntry& each : tuning.entries) each.samples.clear();
  }
  std::string bytes = to_binary(tuning);
  while (bytes.size() > kOfferBytes) {
    tuning.entries.erase(tuning.entries.begin());
    bytes = to_binary(tuning);
  }
  ByteWriter out;
  out.put(static_cast<std::uint8_t>(keeps)).put_text(config.tune_file.substr(0, kPathCap));
  out.put_text(cpu).put_text(bytes);
  return out.take();
}

Result<std::shared_ptr<Tuner>> Tuner::accept(std::string_view offer) {
  auto tuner = std::make_shared<Tuner>();
  if (offer.empty()) return tuner;
  ByteReader in(offer);
  tuner->keeps_ = in.get<std::uint8_t>() != 0;
  tuner->path_ = in.get_text(kPathCap);
  tuner->cpu_ = in.get_text(256);
  const std::string bytes = in.get_text(kOfferBytes);
  if (!in.finished()) return Status(Code::kInternal, "rank 0 tells its tuning in another way");
  HCCL_ASSIGN_OR_RETURN(tuner->tuning_, tuning_from_binary(bytes));
  return tuner;
}

TuningKey Tuner::key(const std::vector<int>& hosts, std::string_view transport, bool shared_cores,
                     bool cma) const {
  std::map<int, std::uint32_t> ranks;
  for (const int host : hosts) ++ranks[host];
  TuningKey key{
      HCCL_VERSION_TEXT, cpu_, std::string(transport), static_cast<std::uint32_t>(ranks.size()), 0,
      shared_cores,      cma};
  for (const auto& [host, number] : ranks)
    key.ranks_per_host = std::max(key.ranks_per_host, number);
  return key;
}

Result<TuningEntry> Tuner::measure(const TuningKey& key, int size, exec::Executor& executor,
                                   exec::host::HostPath* host_path, memory::Heap* heap,
                                   const Limits& limits) const {
  TuningEntry entry;
  entry.key = key;
  if (host_path == nullptr) {
    HCCL_ASSIGN_OR_RETURN(entry.messages, exec::measure_messages(executor, size, limits, kBudget));
    return entry;
  }
  const exec::host::Ways defaults = host_path->ways();
  HCCL_ASSIGN_OR_RETURN(entry.samples,
                        exec::host::measure_ways(*host_path, heap, defaults, kBudget));
  entry.ways = exec::host::fit(defaults, entry.samples);
  return entry;
}

std::string Tuner::encode(const TuningEntry& entry) {
  Tuning one;
  one.entries.push_back(entry);
  return to_binary(one);
}

Result<TuningEntry> Tuner::decode(std::string_view bytes) {
  HCCL_ASSIGN_OR_RETURN(Tuning one, tuning_from_binary(bytes));
  if (one.entries.size() != 1) return Status(Code::kInternal, "rank 0 tells no single measurement");
  return std::move(one.entries.front());
}

void Tuner::add(const TuningEntry& entry, bool is_root, const Logger& log) {
  tuning_.put(entry);
  fresh_.push_back(entry.key);
  if (!is_root) return;
  const Status kept = keep_tuning(path_, entry);
  if (kept.ok()) {
    log->info("HCCL_TUNE_FILE: measured for {}; kept in {}", words(entry.key), path_);
  } else {
    log->warn(
        "HCCL_TUNE_FILE: what was measured is used but not kept, and will be measured again: "
        "{}",
        kept.message());
  }
}

Tuner::Use Tuner::use(const TuningKey& key) const {
  Use use;
  use.source = "default table";
  const TuningEntry* const exact = tuning_.find(key);
  if (exact != nullptr) {
    use.ways = exact->ways;
    use.messages = exact->messages;
    const bool now = std::find(fresh_.begin(), fresh_.end(), key) != fresh_.end();
    use.source = "from " + path_ + (now ? " (measured now)" : " (measured before)");
  }
  if (use.messages || use.ways) return use;
  if (const TuningEntry* const near = tuning_.nearest(key)) {
    use.messages = near->messages;
    use.source = "from " + path_ + " (measured for " + words(near->key) + ")";
  }
  return use;
}

}  // namespace hccl::core
