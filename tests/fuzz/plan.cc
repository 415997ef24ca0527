// hccl-plan's inputs: the traces of one or more ranks and its options, up to the page.
#include <vector>

#include "hccl/files/codecs.h"
#include "split/plan_tool/report.h"
#include "split/trace.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hccl;
  using namespace hccl::split;
  fuzz::Input input(data, size);
  const std::uint8_t what = input.byte();
  plan_tool::Options options;
  options.max_segments = 1 + input.byte();
  options.slack = input.byte() / 255.0;
  if (what & 1) options.ranks = 2 + input.get<std::uint32_t>() % ((1 << 20) - 1);
  if (what & 2) options.start = input.get<std::uint32_t>() * 1e-6;
  if (what & 4) options.bytes_per_second = 1e-6 + input.get<std::uint64_t>() / 255.0;
  if (what & 8) options.what_if_ranks.push_back(2 + input.byte());
  if (what & 16)
    options.what_if_links.push_back({input.byte() * 1e-6, 1.0 + input.get<std::uint32_t>()});
  std::vector<Trace> traces;
  const std::uint32_t ranks = 1 + (what >> 6);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const auto form = what & 32 ? files::Form::kJson : files::Form::kBinary;
    const std::string_view bytes = ranks == 1 ? input.rest() : input.blob();
    const auto trace = files::decode(&files::Codecs::trace, bytes, form);
    if (!trace.ok()) return 0;
    traces.push_back(*trace);
  }
  plan_tool::Report report;
  auto analysis = plan_tool::analyse(traces, options);
  if (!analysis.ok()) return 0;
  report.analysis = std::move(*analysis);
  auto advice = plan_tool::diagnose(report.analysis, options.slack);
  auto cuts = plan_tool::explain_cuts(report.analysis);
  if (!advice.ok() || !cuts.ok()) return 0;
  report.advice = std::move(*advice);
  report.cuts = std::move(*cuts);
  report.files = {"trace.pb"};
  PROMISE(!plan_tool::text(report).empty());
  PROMISE(plan_tool::page(report).size() > plan_tool::json(report).size());
  return 0;
}
