#include "hccl/join/rank_table.h"

#include <algorithm>

#include "hccl/base/text.h"
#include "hccl/join/rank_table_item.h"

namespace hccl::join {
namespace {

// Sorts by rank. Refuses numbers that are not exactly 0..n-1.
Status order(std::vector<RankEntry>& ranks) {
  std::sort(ranks.begin(), ranks.end(),
            [](const RankEntry& a, const RankEntry& b) { return a.rank < b.rank; });
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].rank != static_cast<int>(i)) {
      return wrong_value(std::to_string(ranks[i].rank),
                         "rank_id (sorted, number " + std::to_string(i) + ")",
                         std::to_string(i) + ", as ranks are 0 to " +
                             std::to_string(ranks.size() - 1) + ", each once");
    }
  }
  return {};
}

// A length in front of each text makes the digests of different tables differ.
std::string describe(const RankTable& table, const std::string& extra) {
  const auto text = [](const std::string& s) { return std::to_string(s.size()) + ":" + s; };
  std::string out = "rank table " + table.version + "\n" + extra;
  for (const RankEntry& e : table.ranks) {
    out += std::to_string(e.rank) + " " + text(e.server_id) + " " + text(e.pod) + " " +
           std::to_string(e.device) + " " + text(e.address) + " " + std::to_string(e.port) + "\n";
  }
  return out;
}

Result<TableDraft> read_layout(const TableItem& root, const std::optional<std::string>& version) {
  if (!version.has_value()) return read_legacy_table(root);
  if (*version == "1.0") return read_server_table(root, false);
  if (*version == "1.1") return read_node_table(root);
  return read_server_table(root, true);
}

}  // namespace

Result<RankTable> parse_rank_table(std::string_view json) {
  auto parsed = parse_json(json);
  if (!parsed.ok()) return parsed.status().with_context("EI0004: the rank table cannot be read");
  if (parsed->type != JsonNode::Type::kObject) {
    return Status(Code::kPara, "EI0004: the rank table cannot be read: it is no JSON object");
  }
  const TableItem root(*parsed, "");
  HCCL_ASSIGN_OR_RETURN(const auto version, root.optional_text("version"));
  if (version.has_value() && *version != "1.0" && *version != "1.1" && *version != "1.2") {
    const std::string reason =
        *version == "2.0" ? "is for NPU clusters with a topology file" : "is unknown";
    return Status(Code::kNotSupport,
                  wrong_value(*version, "version", "1.0, 1.1 or 1.2, or no version key").message() +
                      " This version " + reason + ".");
  }
  HCCL_RETURN_IF_ERROR(root.text("status").status());
  HCCL_ASSIGN_OR_RETURN(TableDraft draft, read_layout(root, version));

  RankTable table;
  table.version = version.value_or("");
  table.ranks = std::move(draft.ranks);
  HCCL_RETURN_IF_ERROR(order(table.ranks));
  table.digest_text = describe(table, draft.extra);
  return table;
}

Result<int> own_rank(const RankTable& table, std::string_view identify, std::optional<int> device) {
  const auto refuse = [&](Code code, const std::string& expected) {
    return Status(code,
                  "EI0014: Value \"" + shown(identify) +
                      "\" for RANK_ID, or for the rank in a call, is invalid. Expected value: " +
                      expected + ".");
  };
  const bool by_pod = !table.ranks.empty() && !table.ranks.front().pod.empty();
  if (!by_pod) {
    const auto rank = decimal(identify);
    if (!rank || *rank >= table.ranks.size()) {
      return refuse(Code::kPara, "decimal digits, a rank of the table, 0 to " +
                                     std::to_string(table.ranks.size() - 1));
    }
    return static_cast<int>(*rank);
  }
  std::vector<const RankEntry*> mine;
  for (const RankEntry& entry : table.ranks) {
    if (entry.pod == identify) mine.push_back(&entry);
  }
  if (mine.empty()) return refuse(Code::kUnavail, "the pod_name of an instance of the rank table");
  if (mine.size() == 1) return mine.front()->rank;
  for (const RankEntry* entry : mine) {
    if (entry->device == device) return entry->rank;
  }
  if (!device.has_value()) {
    return refuse(Code::kPara, "a pod with one device; this one has " +
                                   std::to_string(mine.size()) +
                                   ", so the device must be set too (ASCEND_DEVICE_ID)");
  }
  return refuse(Code::kUnavail, "a pod with device " + std::to_string(*device));
}

}  // namespace hccl::join
