#include "split/plan_tool/advice.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "split/plan_tool/words.h"

namespace hccl::split::plan_tool {
namespace {

std::uint64_t bytes_of(const Profile& profile, std::uint32_t first, std::uint32_t last) {
  return std::accumulate(profile.bytes.begin() + first, profile.bytes.begin() + last + 1,
                         std::uint64_t{0});
}

/// "1 segment" or "2 segments".
std::string count(std::size_t number, const char* thing) {
  return format("%zu %s%s", number, thing, number == 1 ? "" : "s");
}

/// "12 ms before backward ends" or "12 ms after backward".
std::string beside_backward(double time, double compute_end) {
  return time <= compute_end ? ms(compute_end - time) + " before backward ends"
                             : ms(time - compute_end) + " after backward has ended";
}

/// The first cut in which two plans differ.
std::size_t first_difference(const Segments& a, const Segments& b) {
  std::size_t k = 0;
  while (k < a.size() && k < b.size() && a[k] == b[k]) ++k;
  return k;
}

/// Describes cuts at wrong places: the best plan with at most as many segments is better than
/// today's plan.
Advice misplaced(const Analysis& analysis) {
  const View& today = analysis.today_overlapped;
  const Segments& now = today.last_indices;
  const Segments& then = analysis.best_of_todays_count.last_indices;
  const double gain = today.prediction.end - analysis.best_of_todays_count.prediction.end;
  if (then.size() < now.size()) {
    const double saved = analysis.line.start * static_cast<double>(now.size() - then.size());
    std::string text = format("%s instead of %zu: the end comes %s earlier",
                              count(then.size(), "segment").c_str(), now.size(), ms(gain).c_str());
    if (saved < 0.99 * gain) return {"fewer segments, cut elsewhere", text + "."};
    text += ": each allreduce costs a start of " + ms(analysis.line.start) +
            ", which is more than it gains by sending bytes earlier.";
    return {"fewer segments", std::move(text)};
  }
  const std::size_t k = first_difference(now, then);
  const Prediction::Times& times = today.prediction.segments[k];
  const std::uint32_t first = k == 0 ? 0 : now[k - 1] + 1;
  const std::string bytes = megabytes(bytes_of(analysis.profile, first, now[k]));
  const double compute_end = today.compute_end;
  const std::string instead =
      format("Cut after %s instead of %s: the last allreduce ends %s earlier.",
             gradient_text(analysis.profile, then[k]).c_str(),
             gradient_text(analysis.profile, now[k]).c_str(), ms(gain).c_str());
  if (now[k] < then[k]) {
    const std::uint64_t rest =
        bytes_of(analysis.profile, now[k] + 1,
                 static_cast<std::uint32_t>(analysis.profile.bytes.size() - 1));
    return {format("AR%zu too early", k + 1),
            format("AR%zu has only %s and ends at %s, %s; %s are left to the later allreduces. "
                   "%s",
                   k + 1, bytes.c_str(), ms(times.end).c_str(),
                   beside_backward(times.end, compute_end).c_str(), megabytes(rest).c_str(),
                   instead.c_str())};
  }
  return {
      format("AR%zu too late", k + 1),
      format("AR%zu waits until %s for the last of its %s, and occupies the wire until %s, %s. %s",
             k + 1, ms(times.start).c_str(), bytes.c_str(), ms(times.end).c_str(),
             beside_backward(times.end, compute_end).c_str(), instead.c_str())};
}

Advice more(const Analysis& analysis) {
  const double gain = analysis.best_of_todays_count.prediction.end - analysis.best.prediction.end;
  const std::size_t now = analysis.today.last_indices.size();
  return {"add segments",
          format("%s cannot do better than %s%s; %zu segments end at %s, %s earlier.",
                 now == 1 ? "One segment" : format("%zu segments", now).c_str(),
                 ms(analysis.best_of_todays_count.prediction.end).c_str(),
                 now == 1 ? "" : " however they are cut", analysis.best.last_indices.size(),
                 ms(analysis.best.prediction.end).c_str(), ms(gain).c_str())};
}

// The plans overlap backward, but today's segments run after it.
Advice overlap(const Analysis& analysis) {
  const double gain = analysis.today.prediction.end - analysis.today_overlapped.prediction.end;
  std::string text =
      "Today's segments run after backward, the planned segments beside it: turn on hcom_parallel.";
  if (gain > 0) text += " With it, today's cuts alone would end " + ms(gain) + " earlier.";
  return {"no overlap", std::move(text)};
}

/// Compares these cuts with the best plan: how much later or earlier the last allreduce ends.
Result<std::string> effect(const Analysis& analysis, const Segments& changed) {
  HCCL_ASSIGN_OR_RETURN(const double end, end_of(analysis, changed));
  const double by = end - analysis.best.prediction.end;
  const std::string text = ms(std::abs(by));
  if (text == "0.000 ms") return std::string("no later");
  return text + (by > 0 ? " later" : " earlier");
}

Result<std::string> margins(const Analysis& analysis, std::size_t k) {
  const Segments& plan = analysis.best.last_indices;
  std::string text;
  const auto add = [&](const char* what, const Segments& changed) -> Status {
    HCCL_ASSIGN_OR_RETURN(const std::string by, effect(analysis, changed));
    text += (text.empty() ? "" : ", ") + std::string(what) + by;
    return {};
  };
  Segments changed = plan;
  changed.erase(changed.begin() + static_cast<std::ptrdiff_t>(k));
  HCCL_RETURN_IF_ERROR(add("Without this cut the end is ", changed));
  if (plan[k] > (k == 0 ? 0 : plan[k - 1] + 1)) {
    changed = plan;
    --changed[k];
    HCCL_RETURN_IF_ERROR(add("one gradient earlier ", changed));
  }
  if (plan[k] + 1 < plan[k + 1]) {
    changed = plan;
    ++changed[k];
    HCCL_RETURN_IF_ERROR(add("one gradient later ", changed));
  }
  return text + ".";
}

}  // namespace

std::string gradient_text(const Profile& profile, std::uint32_t index) {
  const std::string& name = profile.names[index];
  return "gradient " + std::to_string(index) + (name.empty() ? "" : " (" + name + ")");
}

Result<std::vector<Advice>> diagnose(const Analysis& analysis, double slack) {
  std::vector<Advice> found;
  const double best = analysis.best.prediction.end;
  const double today = analysis.today_overlapped.prediction.end;
  const double same_count = analysis.best_of_todays_count.prediction.end;
  const double counts = slack * best;  // smaller differences are not reported
  const bool runs_after = !analysis.profile.overlapped &&
                          analysis.today.prediction.end - std::min(best, today) > counts;
  const std::optional<Contention>& contention = analysis.profile.contention;
  if (contention && !contention->overlap_pays()) {
    found.push_back(
        {"overlap does not pay",
         format("While both run, compute keeps %s of its speed and communication %s: "
                "together no more than one alone. One segment after backward is best.",
                percent(contention->compute).c_str(), percent(contention->communication).c_str())});
  }
  const std::size_t before = analysis.today.last_indices.size();
  if (best_is_worse(analysis)) {
    found = {{"today's cuts are better",
              format("With %zu segments the end is %s, %s before that of the best plan of at most "
                     "%u: allow more with --max-segments.",
                     before, ms(today).c_str(), ms(best - today).c_str(), analysis.max_segments)}};
  } else {
    if (today - same_count > counts) found.push_back(misplaced(analysis));
    if (same_count - best > counts) found.push_back(more(analysis));
  }
  if (!found.empty()) {
    // The reasons are there.
  } else if (analysis.best.last_indices.size() < before) {
    found.push_back({"fewer segments do",
                     format("The best plan has %s, and ends within %s of the best end with less "
                            "work than %zu.",
                            count(analysis.best.last_indices.size(), "segment").c_str(),
                            percent(slack).c_str(), before)});
  } else if (!runs_after) {
    found.push_back({"nothing to gain",
                     format("Today's plan ends within %s of the best.", percent(slack).c_str())});
  }
  if (runs_after) found.insert(found.begin(), overlap(analysis));
  if (analysis.start_unknown) {
    found.insert(
        found.begin(),
        {"start unknown",
         "All allreduces of the trace have about the same size, which does not show what "
         "each start costs. Here a start costs nothing, so the best plan may have too many "
         "segments. Trace segments of several sizes, or give --start."});
  }
  return found;
}

Result<std::vector<Cut>> explain_cuts(const Analysis& analysis) {
  const View& best = analysis.best;
  std::vector<Cut> cuts;
  std::uint32_t first = 0;
  for (std::size_t k = 0; k + 1 < best.last_indices.size(); ++k) {
    const std::uint32_t after = best.last_indices[k];
    const double end = best.prediction.segments[k].end;
    const double ready = best.prediction.ready[best.last_indices[k + 1]];
    const std::string bytes = megabytes(bytes_of(analysis.profile, first, after));
    std::string text =
        end <= ready
            ? format(
                  "AR%zu sends %s while backward still computes AR%zu; the wire is then free "
                  "for %s.",
                  k + 1, bytes.c_str(), k + 2, ms(ready - end).c_str())
            : format(
                  "AR%zu sends %s, and AR%zu follows at once: its gradients were ready %s "
                  "before, so the wire never rests.",
                  k + 1, bytes.c_str(), k + 2, ms(end - ready).c_str());
    HCCL_ASSIGN_OR_RETURN(const std::string if_moved, margins(analysis, k));
    cuts.push_back({after, analysis.profile.names[after], text + " " + if_moved});
    first = after + 1;
  }
  return cuts;
}

std::string python_lines(const Analysis& analysis) {
  std::string list;
  const View& better = best_is_worse(analysis) ? analysis.today_overlapped : analysis.best;
  for (const std::uint32_t last : better.last_indices)
    list += (list.empty() ? "" : ", ") + std::to_string(last);
  std::string call = "set_split_strategy_by_idx([" + list + "]";
  if (!analysis.group.empty() && analysis.group != "hccl_world_group") {
    std::string quoted;
    for (const char c : analysis.group) {
      if (static_cast<unsigned char>(c) < ' ') {
        quoted += format("\\x%02x", c);
        continue;
      }
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
    call += ", group=\"" + quoted + "\"";
  }
  const char* const also = analysis.profile.overlapped ? "" : "  # and turn on hcom_parallel";
  return "from hccl.split.api import set_split_strategy_by_idx\n" + call + ")" + also + "\n";
}

std::string newest_first_text(const Analysis& analysis) {
  if (!analysis.newest_first) return "";
  const NewestFirst& mode = *analysis.newest_first;
  const std::string text = format(
      "if the optimizer updated each segment on its own (no norm over all gradients), the next "
      "forward would wait %s for its weights with the best plan",
      ms(mode.in_order).c_str());
  if (mode.plan.late >= mode.in_order) return text + "; newest first would gain nothing";
  return text + format(", and %s with the newest gradients first, in %zu messages of at most %s",
                       ms(mode.plan.late).c_str(), mode.plan.messages.size(),
                       megabytes(mode.plan.chunk_bytes).c_str());
}

}  // namespace hccl::split::plan_tool
