// Rank tables: an accepted table has each rank once, and each rank has a place.
#include "hccl/join/rank_table.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hccl::join;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto table = parse_rank_table(text);
  if (!table.ok()) {
    PROMISE(!table.status().message().empty() && table.status().message().size() < 4096);
    return 0;
  }
  PROMISE(!table->ranks.empty() && table->ranks.size() <= kRankTableRanks);
  for (std::size_t rank = 0; rank < table->ranks.size(); ++rank) {
    const RankEntry& entry = table->ranks[rank];
    PROMISE(entry.rank == static_cast<int>(rank));
    const std::string identify = entry.pod.empty() ? std::to_string(rank) : entry.pod;
    const auto own = own_rank(*table, identify, entry.device);
    PROMISE(own.ok() && (!entry.pod.empty() || own.value() == entry.rank));
  }
  static_cast<void>(own_rank(*table, text.substr(0, 12)));
  return 0;
}
