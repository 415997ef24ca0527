#include "split/engine/window.h"

#include <algorithm>
#include <utility>

#include "split/statistics.h"

namespace hccl::split {

Iterations iterations_of(Times& now, std::deque<Times>& past, std::uint64_t begin) {
  Iterations found;
  found.all.push_back(&now);
  for (auto at = past.rbegin(); at != past.rend(); ++at) {
    if (at->number <= begin || at->number + Window::kIterations <= now.number) break;
    found.all.push_back(&*at);
  }
  for (const Times* each : found.all) found.kinds[each->overlapped ? 1 : 0].push_back(each);
  return found;
}

// For each value of the message, the minimum over all ranks counts. Times from the start of the
// iteration are sent negative, so that the latest rank counts. Ranks need not begin together, but
// they share the end of the last segment. So starts and ends of segments are also sent as times
// before that end; the minimum then belongs to the last rank.
std::vector<double> message_of(const Iterations& window, std::size_t gradients,
                               std::size_t segments) {
  std::vector<double> message;
  for (const auto& kind : window.kinds) {
    if (kind.empty()) continue;
    const auto put = [&](const auto& get) {
      message.push_back(
          -median_of(kind, [&](const Times& t) { return seconds(get(t) - t.begin); }));
    };
    for (std::size_t i = 0; i < gradients; ++i) put([i](const Times& t) { return t.ready[i]; });
    put([](const Times& t) { return t.compute_end(); });
    for (const Times* each : kind) {
      const auto late = [&](std::int64_t t) { message.push_back(-seconds(t - each->begin)); };
      const auto back = [&](std::int64_t t) { message.push_back(seconds(each->end.back() - t)); };
      late(each->wait_end);
      for (std::size_t s = 0; s < segments; ++s) late(each->start[s]);
      for (std::size_t s = 0; s < segments; ++s) back(each->start[s]);
      for (std::size_t s = 0; s < segments; ++s) back(each->end[s]);
    }
  }
  for (const Times* each : window.all) {
    for (std::size_t s = 0; s < segments; ++s)
      message.push_back(seconds(each->end[s] - each->start[s]));
  }
  return message;
}

// A segment lasts from the start on the last rank to the end on the last rank. So the times of
// consecutive segments add up to the time that passes.
Window window_of(const std::vector<double>& message, const Iterations& window,
                 std::size_t gradients, std::size_t segments) {
  Window out;
  auto next = message.begin();
  const auto late = [&] { return std::max(0.0, -*next++); };
  for (int k = 0; k < 2; ++k) {
    const std::size_t count = window.kinds[k].size();
    if (count == 0) continue;
    Window::Medians& kind = k == 0 ? out.alone : out.overlapped;
    kind.iterations = count;
    for (std::size_t i = 0; i < gradients; ++i) kind.ready.push_back(late());
    kind.compute_end = late();
    std::vector<double> ends;
    std::vector<std::vector<double>> starts(segments), took(segments);
    for (std::size_t i = 0; i < count; ++i) {
      ends.push_back(late());
      for (std::size_t s = 0; s < segments; ++s) starts[s].push_back(late());
      for (std::size_t s = 0; s < segments; ++s) took[s].push_back(*next++);
      for (std::size_t s = 0; s < segments; ++s)
        took[s].back() = std::max(0.0, took[s].back() - *next++);
    }
    kind.end = median(std::move(ends));
    for (std::size_t s = 0; s < segments; ++s) {
      kind.start.push_back(median(std::move(starts[s])));
      kind.seconds.push_back(median(std::move(took[s])));
    }
  }
  for (Times* each : window.all) {
    for (std::size_t s = 0; s < segments; ++s) {
      const std::int64_t passed = each->end[s] - each->start[s];
      const double waited = static_cast<double>(passed) - 1e9 * *next++;  // NaN if a peer sent NaN
      each->wait_for_peer[s] =
          waited > 0 ? std::min(passed, static_cast<std::int64_t>(std::min(waited, 1e18))) : 0;
    }
  }
  return out;
}

}  // namespace hccl::split
