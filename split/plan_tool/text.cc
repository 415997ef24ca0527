#include <numeric>
#include <utility>

#include "split/plan_tool/report.h"
#include "split/plan_tool/words.h"

namespace hccl::split::plan_tool {
namespace {

std::string heading(const std::string& words) { return "\n" + words + "\n"; }

std::string what_was_measured(const Report& report) {
  const Profile& profile = report.analysis.profile;
  const std::uint64_t bytes =
      std::accumulate(profile.bytes.begin(), profile.bytes.end(), std::uint64_t{0});
  std::string out = format(
      "%u ranks%s, %zu iterations, %zu gradients, %s; backward ends at %s\n", profile.rank_size,
      report.analysis.group.empty() ? "" : (" of " + report.analysis.group).c_str(),
      profile.iterations, profile.bytes.size(), megabytes(bytes).c_str(),
      ms(profile.compute_end).c_str());
  const AffineCost& line = report.analysis.line;
  out +=
      format("an allreduce costs %.1f us and %.3f ms a MB", line.start * 1e6, line.per_byte * 1e9);
  if (report.analysis.start_given && report.analysis.bandwidth_given) {
    out += " (given)\n";
  } else if (report.analysis.start_given || report.analysis.bandwidth_given) {
    out += format(" (the %s is given, the other is measured; %s off)\n",
                  report.analysis.start_given ? "start" : "bandwidth",
                  percent(report.analysis.misfit).c_str());
  } else {
    const bool table = std::holds_alternative<TableCost>(report.analysis.cost);
    out += report.analysis.start_unknown
               ? " (measured for one size, so the start is unknown)\n"
               : format(" (measured; %s off%s)\n", percent(report.analysis.misfit).c_str(),
                        table ? ", so planned with the measured table" : "");
  }
  if (profile.contention) {
    out += format("while both run, compute keeps %s of its speed and communication %s\n",
                  percent(profile.contention->compute).c_str(),
                  percent(profile.contention->communication).c_str());
  }
  return out;
}

std::string plan_row(const char* name, const View& view) {
  return format("%-14s%9zu%25s%25s%12s\n", name, view.last_indices.size(),
                ms(view.prediction.end).c_str(), ms(view.tail()).c_str(),
                percent(view.gap()).c_str());
}

std::string segments(const Profile& profile, const View& view) {
  std::string out =
      format("  %-5s%-14s%12s%16s%16s%16s\n", "", "gradients", "bytes", "ready", "start", "end");
  std::size_t number = 0;
  for (const SegmentView& segment : segments_of(profile, view)) {
    out += format("  AR%-3zu%-14s%12s%16s%16s%16s\n", ++number,
                  format("[%u,%u]", segment.first, segment.last).c_str(),
                  megabytes(segment.bytes).c_str(), ms(segment.ready).c_str(),
                  ms(segment.times.start).c_str(), ms(segment.times.end).c_str());
  }
  return out;
}

std::string rows(const char* what, const std::vector<Scenario>& scenarios) {
  std::string out = format("  %-30s%16s%16s%16s%16s%10s\n", what, "today ends", "best ends", "tail",
                           "lower bound", "segments");
  for (const Scenario& row : scenarios) {
    out += format("  %-30s%16s%16s%16s%16s%10zu\n", row.label.c_str(),
                  ms(row.today.prediction.end).c_str(), ms(row.best.prediction.end).c_str(),
                  ms(row.best.tail()).c_str(), ms(row.best.lower_bound).c_str(),
                  row.best.last_indices.size());
  }
  return out;
}

}  // namespace

std::string text(const Report& report) {
  const Analysis& a = report.analysis;
  std::string out = what_was_measured(report);
  if (a.ranks != a.profile.rank_size)
    out += format("planned for %u ranks instead of %u\n", a.ranks, a.profile.rank_size);
  out += format("\n%-14s%9s%25s%25s%12s\n", "", "segments", "end of last allreduce",
                "tail after bp_end", "over bound");
  out += plan_row("today", a.today);
  out += plan_row("best", a.best);
  out += format("%-14s%9s%25s\n", "lower bound", "", ms(a.best.lower_bound).c_str());
  if (a.ranks == a.profile.rank_size && a.profile.measured_end > 0) {
    out += format("%-14s%9s%25s%25s   the model is %s off\n", "measured today", "",
                  ms(a.profile.measured_end).c_str(),
                  ms(a.profile.measured_end - a.profile.measured_compute_end).c_str(),
                  percent(std::abs(a.today.prediction.end / a.profile.measured_end - 1)).c_str());
  }
  out += heading("today");
  out += segments(a.profile, a.today);
  for (const Advice& advice : report.advice) out += "  " + advice.title + ": " + advice.text + "\n";
  out += heading("best");
  out += segments(a.profile, a.best);
  for (const Cut& cut : report.cuts)
    out += "  cut after " + gradient_text(a.profile, cut.after) + ": " + cut.text + "\n";
  out += heading("to use it");
  out += python_lines(a);
  out += heading("what if");
  out += rows("segments at most", a.by_segments) + "\n";
  out += rows("ranks", a.by_ranks) + "\n";
  out += rows("line of each rank", a.by_links);
  if (a.newest_first) out += "\n  " + newest_first_text(a) + "\n";
  return printable(std::move(out));
}

}  // namespace hccl::split::plan_tool
