// One round of an open(): every rank sends all others its part, or the reason why it has none. So
// all ranks succeed or fail together, and no rank waits for a rank that gave up.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "hccl/base/bytes.h"
#include "transport/transport.h"

namespace hccl::transport {

/// Exchanges `mine`. Returns the parts of all ranks in rank order; an absent rank's part is empty.
/// If ranks failed, returns this rank's own failure or, without one, the failure of the lowest
/// failed rank, with that rank as the culprit.
inline Result<std::vector<std::string>> agree(const OpenArgs& args,
                                              const Result<std::string>& mine) {
  constexpr std::size_t kLongest = 64 * 1024;  // more than any address or reason needs
  ByteWriter writer;
  writer.put(static_cast<std::int32_t>(mine.status().code()));
  writer.put_text(mine.ok() ? mine.value() : mine.status().message());
  auto gathered = args.exchange(writer.take(), args.deadline);
  if (!mine.ok()) return mine.status();
  if (!gathered.ok()) return gathered.status();
  std::vector<std::string>& all = *gathered;
  if (all.size() != static_cast<std::size_t>(args.size)) {
    return Status(Code::kInternal, "the exchange of a transport gave " +
                                       std::to_string(all.size()) + " parts for " +
                                       std::to_string(args.size) + " ranks");
  }
  for (int rank = 0; rank < args.size; ++rank) {
    if (args.absent(rank)) continue;
    std::string& part = all[static_cast<std::size_t>(rank)];
    ByteReader reader(part);
    const auto code = reader.get<std::int32_t>();
    std::string text = reader.get_text(kLongest);
    if (!reader.finished() ||
        to_string(static_cast<Code>(code)) == to_string(static_cast<Code>(-1))) {
      return Status(Code::kInternal,
                    "rank " + std::to_string(rank) + " sent a part that cannot be read", rank);
    }
    if (code != 0) {
      return Status(static_cast<Code>(code), "rank " + std::to_string(rank) + ": " + text, rank);
    }
    part = std::move(text);
  }
  return std::move(gathered).value();
}

}  // namespace hccl::transport
