// Converts the cost table to a Protobuf message and back, and checks the version that it reads.
#include "hccl/select/costs.h"

#include "hccl/files/plugin/costs.pb.h"
#include "hccl/files/plugin/message.h"

namespace hccl::files {
namespace {

using select::CostTable;

constexpr char kCostTableName[] = "cost table";
constexpr std::size_t kNever = local::Tuning{}.stream_from;

void put(const select::CostKey& key, proto::CostKey& out) {
  out.set_library(key.library);
  out.set_cpu(key.cpu);
  out.set_transport(key.transport);
  out.set_hosts(key.hosts);
  out.set_ranks_per_host(key.ranks_per_host);
  out.set_shared_cores(key.shared_cores);
  out.set_kernel_copies(key.kernel_copies);
}

void put(const select::MessageCosts& costs, proto::MessageCosts& out) {
  for (const auto& step : costs.steps) {
    auto* item = out.add_steps();
    item->set_bytes(step.bytes);
    item->set_step_ns(step.step_ns);
    item->set_more_ns(step.more_ns);
  }
  out.set_fold_ns_per_mib(costs.fold_ns_per_mib);
}

void put(const select::LocalCosts& costs, proto::LocalCosts& out) {
  out.set_chunk(costs.tuning.chunk);
  out.set_stream_from(costs.far() ? costs.tuning.stream_from : 0);
  for (const auto& curve : costs.curves) {
    auto* item = out.add_curves();
    item->set_algorithm(curve.algorithm);
    item->set_kind(std::string(to_string(curve.kind)));
    for (const auto& point : curve.points) {
      auto* at = item->add_points();
      at->set_bytes(point.bytes);
      at->set_ns(point.ns);
    }
  }
}

proto::CostTable to_message(const CostTable& table) {
  proto::CostTable message;
  message.set_version(CostTable::kVersion);
  for (const auto& entry : table.entries) {
    auto* out = message.add_entries();
    put(entry.key, *out->mutable_key());
    if (entry.messages) put(*entry.messages, *out->mutable_messages());
    if (entry.local) put(*entry.local, *out->mutable_local());
  }
  return message;
}

select::MessageCosts messages_from(const proto::MessageCosts& in) {
  select::MessageCosts costs;
  for (const auto& step : in.steps()) {
    costs.steps.push_back({step.bytes(), step.step_ns(), step.more_ns()});
  }
  costs.fold_ns_per_mib = in.fold_ns_per_mib();
  return costs;
}

select::LocalCosts local_from(const proto::LocalCosts& in) {
  select::LocalCosts costs;
  costs.tuning = {in.chunk(), in.stream_from() == 0 ? kNever : in.stream_from()};
  for (const auto& curve : in.curves()) {
    select::Curve out{curve.algorithm(), select::CurveKind::kFold, {}};
    while (static_cast<std::size_t>(out.kind) < select::kKinds &&
           to_string(out.kind) != curve.kind()) {
      out.kind = static_cast<select::CurveKind>(static_cast<std::size_t>(out.kind) + 1);
    }
    if (static_cast<std::size_t>(out.kind) == select::kKinds) continue;  // from a newer library
    for (const auto& point : curve.points()) out.points.push_back({point.bytes(), point.ns()});
    costs.curves.push_back(std::move(out));
  }
  return costs;
}

Result<CostTable> from_message(const proto::CostTable& message) {
  if (message.version() == 0) return Status(Code::kPara, "not a cost table: it has no version");
  if (message.version() > CostTable::kVersion) {
    return Status(Code::kNotSupport, "cost table version " + std::to_string(message.version()) +
                                         " is newer than " + std::to_string(CostTable::kVersion) +
                                         ", the newest one this library reads: update it");
  }
  CostTable table;
  for (const auto& in : message.entries()) {
    const auto& key = in.key();
    select::CostEntry& entry = table.entries.emplace_back();
    entry.key = {key.library(),        key.cpu(),          key.transport(),    key.hosts(),
                 key.ranks_per_host(), key.shared_cores(), key.kernel_copies()};
    if (in.has_messages()) entry.messages = messages_from(in.messages());
    if (in.has_local()) entry.local = local_from(in.local());
  }
  return table;
}

}  // namespace

Codec<CostTable> costs_codec() {
  return codec<CostTable, proto::CostTable, to_message, from_message, kCostTableName>();
}

}  // namespace hccl::files
