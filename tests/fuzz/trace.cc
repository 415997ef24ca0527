// A trace in both forms: an accepted trace is written unchanged, and can be written in every other
// form.
#include "split/trace.h"

#include "hccl/files/codecs.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hccl;
  fuzz::Input input(data, size);
  const auto form = input.byte() % 2 == 0 ? files::Form::kBinary : files::Form::kJson;
  const auto trace = files::decode(&files::Codecs::trace, input.rest(), form);
  if (!trace.ok()) return 0;
  const auto bytes = files::encode(&files::Codecs::trace, *trace, form);
  PROMISE(bytes.ok());
  const auto again = files::decode(&files::Codecs::trace, *bytes, form);
  PROMISE(again.ok() && *again == *trace);
  for (const auto& iteration : trace->iterations) {
    static_cast<void>(split::timeline_text(iteration));
  }
  static_cast<void>(split::chrome_json(*trace));
  static_cast<void>(split::csv(*trace));
  if (split::check_trace(*trace).ok()) static_cast<void>(split::merge_ranks({&*trace, 1}));
  return 0;
}
