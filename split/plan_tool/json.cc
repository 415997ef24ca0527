#include <nlohmann/json.hpp>

#include "split/plan_tool/page.h"
#include "split/plan_tool/report.h"

namespace hccl::split::plan_tool {
namespace {

using nlohmann::ordered_json;

ordered_json plan(const Profile& profile, const View& view) {
  ordered_json segments = ordered_json::array();
  for (const SegmentView& segment : segments_of(profile, view))
    segments.push_back({{"first", segment.first},
                        {"last", segment.last},
                        {"bytes", segment.bytes},
                        {"ready", segment.ready},
                        {"start", segment.times.start},
                        {"end", segment.times.end}});
  return {
      {"last_indices", view.last_indices}, {"end", view.prediction.end},      {"tail", view.tail()},
      {"compute_end", view.compute_end},   {"lower_bound", view.lower_bound}, {"gap", view.gap()},
      {"segments", std::move(segments)}};
}

ordered_json samples(const std::vector<CostSample>& samples) {
  ordered_json out = ordered_json::array();
  for (const CostSample& sample : samples) out.push_back({sample.bytes, sample.seconds});
  return out;
}

ordered_json cost(const Analysis& a) {
  ordered_json out{{"start", a.line.start},
                   {"per_byte", a.line.per_byte},
                   {"given", a.start_given || a.bandwidth_given},
                   {"start_given", a.start_given},
                   {"bandwidth_given", a.bandwidth_given},
                   {"misfit", a.misfit},
                   {"samples", samples(a.profile.samples)},
                   {"overlapped_samples", samples(a.profile.overlapped_samples)},
                   {"table", nullptr}};
  if (const auto* table = std::get_if<TableCost>(&a.cost)) {
    out["table"] = ordered_json::array();
    for (const auto& point : table->points()) out["table"].push_back({point.bytes, point.seconds});
  }
  return out;
}

ordered_json rows(const Profile& profile, const std::vector<Scenario>& scenarios) {
  ordered_json out = ordered_json::array();
  for (const Scenario& row : scenarios)
    out.push_back({{"label", row.label},
                   {"today", plan(profile, row.today)},
                   {"best", plan(profile, row.best)}});
  return out;
}

ordered_json gradients(const Profile& profile) {
  ordered_json out = ordered_json::array();
  for (std::size_t i = 0; i < profile.bytes.size(); ++i)
    out.push_back(
        {{"name", profile.names[i]}, {"bytes", profile.bytes[i]}, {"ready", profile.ready[i]}});
  return out;
}

ordered_json to_json(const Report& report) {
  const Analysis& a = report.analysis;
  const Profile& profile = a.profile;
  ordered_json advice = ordered_json::array();
  for (const Advice& one : report.advice)
    advice.push_back({{"title", one.title}, {"text", one.text}});
  ordered_json cuts = ordered_json::array();
  for (const Cut& cut : report.cuts)
    cuts.push_back({{"after", cut.after}, {"name", cut.name}, {"text", cut.text}});
  ordered_json contention;
  if (profile.contention)
    contention = {{"compute", profile.contention->compute},
                  {"communication", profile.contention->communication}};
  ordered_json newest_first;
  if (a.newest_first)
    newest_first = {{"in_order", a.newest_first->in_order},
                    {"late", a.newest_first->plan.late},
                    {"chunk_bytes", a.newest_first->plan.chunk_bytes},
                    {"messages", a.newest_first->plan.messages.size()},
                    {"text", newest_first_text(a)}};
  return {{"files", report.files},
          {"group", a.group},
          {"traced_ranks", profile.rank_size},
          {"ranks", a.ranks},
          {"iterations", profile.iterations},
          {"overlapped", profile.overlapped},
          {"bound_segments", a.bounded ? ordered_json(*a.bounded) : ordered_json()},
          {"max_segments", a.max_segments},
          {"compute_end", profile.compute_end},
          {"measured_end", profile.measured_end},
          {"measured_compute_end", profile.measured_compute_end},
          {"contention", std::move(contention)},
          {"cost", cost(a)},
          {"today", plan(profile, a.today)},
          {"best", plan(profile, a.best)},
          {"advice", std::move(advice)},
          {"cuts", std::move(cuts)},
          {"python", python_lines(a)},
          {"what_if",
           {{"segments", rows(profile, a.by_segments)},
            {"ranks", rows(profile, a.by_ranks)},
            {"links", rows(profile, a.by_links)},
            {"newest_first", std::move(newest_first)}}},
          {"gradients", gradients(profile)}};
}

}  // namespace

// Names come from users, so bytes that are not UTF-8 are replaced.
std::string json(const Report& report) {
  return to_json(report).dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string page(const Report& report) {
  const std::string data =
      to_json(report).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  std::string safe;  // without '<', a text cannot end the script element
  for (const char c : data) safe += c == '<' ? std::string("\\u003c") : std::string(1, c);
  const std::string_view before(kPage);
  const std::size_t at = before.find(kPlaceOfData);
  return std::string(before.substr(0, at)) + safe +
         std::string(before.substr(at + std::string_view(kPlaceOfData).size()));
}

}  // namespace hccl::split::plan_tool
