// A table of costs, from a file in either form or from rank 0: an accepted table is written
// unchanged, and every choice that it leads to is valid.
#include "hccl/select/costs.h"

#include <cmath>

#include "hccl/core/known_costs.h"
#include "hccl/files/codecs.h"
#include "hccl/local/algorithm.h"
#include "hccl/schedule/algorithm.h"
#include "hccl/select/cost_file.h"
#include "hccl/select/local_selector.h"
#include "hccl/select/message_costs.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace hccl;

void use(const select::CostTable& table) {
  for (const select::CostEntry& entry : table.entries) {
    static_cast<void>(table.nearest(entry.key));
    static_cast<void>(to_string(entry.key));
    if (entry.messages) {
      for (const schedule::Algorithm& algorithm : schedule::algorithms()) {
        for (const std::uint64_t bytes :
             {std::uint64_t{0}, std::uint64_t{1} << 20, std::uint64_t{1} << 40}) {
          PROMISE(select::predict_ns(algorithm, 4, bytes, 1, *entry.messages) >= 0);
        }
      }
    }
    if (entry.local) {
      for (const select::Curve& curve : entry.local->curves) {
        for (const std::uint64_t bytes :
             {std::uint64_t{0}, std::uint64_t{4096}, std::uint64_t{1} << 40}) {
          PROMISE(curve.ns(bytes) >= 0);
        }
      }
    }
  }
}

void check(const select::CostTable& table) {
  PROMISE(table.entries.size() <= select::CostTable::kMostEntries);
  const auto bytes = select::to_bytes(table);
  PROMISE(bytes.ok());
  const auto again = select::from_bytes(*bytes);
  PROMISE(again.ok() && *again == table);
  use(table);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::uint8_t what = input.byte();
  const std::string_view bytes = input.rest();
  if (what % 3 == 0) {
    const auto table = select::from_bytes(bytes);
    if (table.ok()) check(*table);
  } else if (what % 3 == 1) {
    const auto table = files::decode(&files::Codecs::costs, bytes, files::Form::kJson);
    if (table.ok() && table->check().ok()) check(*table);
  } else {
    const auto known = core::KnownCosts::accept(bytes);
    if (!known.ok()) return 0;
    const auto key = (*known)->key({0, 0, 1}, "tcp", false, false);
    static_cast<void>((*known)->wants(key, true));
    static_cast<void>((*known)->use(key));
  }
  return 0;
}
