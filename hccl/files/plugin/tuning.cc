// The tuning as a Protobuf message.
#include "hccl/core/tuning.h"

#include <algorithm>
#include <array>

#include "hccl/files/plugin/message.h"
#include "hccl/files/plugin/tuning.pb.h"

namespace hccl::files {
namespace {

using core::Tuning;
using core::TuningEntry;
using core::TuningKey;

using exec::host::Way;
using exec::host::Ways;
using exec::host::WaySample;
using schedule::MessageCosts;

constexpr char kName[] = "tuning";
constexpr std::size_t kLongestText = 256;
constexpr int kMostSamples = 1024;
constexpr std::uint32_t kMostRanks = 1u << 20;

Status wrong(const std::string& what) { return Status(Code::kPara, "not a tuning: " + what); }

void put(const TuningKey& key, proto::Key& out) {
  out.set_library(key.library);
  out.set_cpu(key.cpu);
  out.set_transport(key.transport);
  out.set_hosts(key.hosts);
  out.set_ranks_per_host(key.ranks_per_host);
  out.set_shared_cores(key.shared_cores);
  out.set_cma(key.cma);
}

void put(const MessageCosts& costs, proto::Messages& out) {
  for (const auto& step : costs.steps) {
    auto* item = out.add_steps();
    item->set_bytes(step.bytes);
    item->set_step_ns(step.step_ns);
    item->set_more_ns(step.more_ns);
  }
  out.set_fold_ns_per_mib(costs.fold_ns_per_mib);
  for (const auto& lanes : costs.lanes) {
    auto* item = out.add_lanes();
    item->set_lanes(static_cast<std::uint32_t>(lanes.lanes));
    item->set_saved_percent(lanes.saved_percent);
  }
}

void put(const Ways& ways, const std::vector<WaySample>& samples, proto::HostPath& out) {
  out.set_ring_most(ways.ring_most);
  out.set_whole_most(ways.whole_most);
  out.set_chain_from(ways.chain_from);
  out.set_cma_moves_from(ways.cma_moves_from);
  out.set_cma_moves_most(ways.cma_moves_most);
  out.set_cma_folds_from(ways.cma_folds_from);
  out.set_cma_folds_most(ways.cma_folds_most);
  out.set_stage_most(ways.stage_most);
  out.set_pull_most(ways.pull_most);
  out.set_chunk(ways.chunk);
  out.set_most_that_fold_all(static_cast<std::uint32_t>(ways.most_that_fold_all));
  for (const auto& sample : samples) {
    auto* item = out.add_samples();
    item->set_way(std::string(words(sample.way)));
    item->set_reachable(sample.reachable);
    item->set_bytes(sample.bytes);
    item->set_chunk(sample.chunk);
    item->set_ns(sample.ns);
  }
}

proto::Tuning to_message(const Tuning& tuning) {
  proto::Tuning message;
  message.set_version(Tuning::kVersion);
  for (const TuningEntry& entry : tuning.entries) {
    auto* out = message.add_entries();
    put(entry.key, *out->mutable_key());
    if (entry.messages) put(*entry.messages, *out->mutable_messages());
    if (entry.ways) put(*entry.ways, entry.samples, *out->mutable_host_path());
  }
  return message;
}

Result<TuningKey> key_from(const proto::Key& in) {
  TuningKey key{in.library(),        in.cpu(),          in.transport(), in.hosts(),
                in.ranks_per_host(), in.shared_cores(), in.cma()};
  for (const std::string* text : {&key.library, &key.cpu, &key.transport}) {
    if (text->empty() || text->size() > kLongestText) {
      return wrong("library, cpu and transport of a key have 1 to 256 bytes");
    }
  }
  for (const std::uint32_t number : {key.hosts, key.ranks_per_host}) {
    if (number == 0 || number > kMostRanks) return wrong("a key names 1 to 2^20 hosts and ranks");
  }
  return key;
}

Result<MessageCosts> costs_from(const proto::Messages& in) {
  MessageCosts costs;
  for (const auto& step : in.steps()) {
    costs.steps.push_back({step.bytes(), step.step_ns(), step.more_ns()});
  }
  costs.fold_ns_per_mib = in.fold_ns_per_mib();
  for (const auto& lanes : in.lanes()) {
    // Too many show in check().
    const auto number = std::min<std::uint32_t>(lanes.lanes(), MessageCosts::kMostLanes + 1);
    costs.lanes.push_back({static_cast<int>(number), lanes.saved_percent()});
  }
  HCCL_RETURN_IF_ERROR(costs.check());
  return costs;
}

Result<std::vector<WaySample>> samples_from(const proto::HostPath& in) {
  std::array<Way, exec::host::kWays> ways{};
  for (std::size_t i = 0; i < ways.size(); ++i) ways[i] = static_cast<Way>(i);
  if (in.samples_size() > kMostSamples) return wrong("more than 1024 samples of the host path");
  std::vector<WaySample> samples;
  for (const auto& item : in.samples()) {
    const auto way =
        std::find_if(ways.begin(), ways.end(), [&](Way each) { return item.way() == words(each); });
    if (way == ways.end()) continue;  // a newer library's
    samples.push_back({*way, item.reachable(), item.bytes(), item.chunk(), item.ns()});
  }
  return samples;
}

Result<Ways> ways_from(const proto::HostPath& in) {
  Ways ways;
  ways.ring_most = in.ring_most();
  ways.whole_most = in.whole_most();
  ways.chain_from = in.chain_from();
  ways.cma_moves_from = in.cma_moves_from();
  ways.cma_moves_most = in.cma_moves_most();
  ways.cma_folds_from = in.cma_folds_from();
  ways.cma_folds_most = in.cma_folds_most();
  ways.stage_most = in.stage_most();
  ways.pull_most = in.pull_most();
  ways.chunk = in.chunk();
  if (in.most_that_fold_all() > kMostRanks) return wrong("most_that_fold_all is beyond 2^20");
  ways.most_that_fold_all = static_cast<int>(in.most_that_fold_all());
  HCCL_RETURN_IF_ERROR(ways.check());
  return ways;
}

Result<Tuning> from_message(const proto::Tuning& message) {
  if (message.version() == 0) return wrong("it has no version");
  if (message.version() > Tuning::kVersion) {
    return Status(Code::kNotSupport, "tuning version " + std::to_string(message.version()) +
                                         " is newer than " + std::to_string(Tuning::kVersion) +
                                         ", the newest one this library reads: update it");
  }
  if (static_cast<std::size_t>(message.entries_size()) > Tuning::kMostEntries) {
    return wrong("more than 256 entries");
  }
  Tuning tuning;
  for (const auto& in : message.entries()) {
    TuningEntry entry;
    HCCL_ASSIGN_OR_RETURN(entry.key, key_from(in.key()));
    if (in.has_messages()) {
      HCCL_ASSIGN_OR_RETURN(entry.messages, costs_from(in.messages()));
    }
    if (in.has_host_path()) {
      HCCL_ASSIGN_OR_RETURN(entry.ways, ways_from(in.host_path()));
      HCCL_ASSIGN_OR_RETURN(entry.samples, samples_from(in.host_path()));
    }
    tuning.entries.push_back(std::move(entry));
  }
  return tuning;
}

}  // namespace

Codec<Tuning> tuning_codec() {
  return codec<Tuning, proto::Tuning, to_message, from_message, kName>();
}

}  // namespace hccl::files
