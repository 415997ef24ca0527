// One object of a rank table with its position in the table. Errors name the value, the key and the
// expected values. Internal to the readers of rank tables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hccl/base/status.h"
#include "hccl/join/json_text.h"
#include "hccl/join/rank_table.h"

namespace hccl::join {

/// kPara, EI0014: "EI0014: Value "x" of server_list[0].server_id in the rank table is invalid.
/// Expected value: …". The value is shortened and made printable.
Status wrong_value(std::string_view value, std::string_view place, std::string_view expected);

class TableItem {
 public:
  /// The node must outlive the item.
  TableItem(const JsonNode& node, std::string place) : node_(&node), place_(std::move(place)) {}

  /// The position of a key, such as "server_list[0].device[1].rank_id". For an empty key: the
  /// item's own position.
  std::string place(std::string_view key) const;

  bool has(std::string_view key) const { return node_->find(key) != nullptr; }
  /// A string; EI0017 if the key is missing or its value is no string.
  Result<std::string> text(std::string_view key) const;
  /// As text(), but nothing if the key is missing.
  Result<std::optional<std::string>> optional_text(std::string_view key) const;
  /// A string of `low` to `high` printable characters.
  Result<std::string> name(std::string_view key, std::size_t low, std::size_t high) const;
  /// A string of decimal digits, low..high.
  Result<std::uint64_t> number(std::string_view key, std::uint64_t low, std::uint64_t high) const;
  Result<std::optional<std::uint64_t>> optional_number(std::string_view key, std::uint64_t low,
                                                       std::uint64_t high) const;
  /// A list of IP addresses with commas between them, in their shortest form; no address if the key
  /// is missing or its value is "".
  Result<std::vector<std::string>> addresses(std::string_view key) const;
  /// One IP address; empty if the key is missing or its value is "".
  Result<std::string> address(std::string_view key) const;
  /// A list of objects; an empty list is an error.
  Result<std::vector<TableItem>> list(std::string_view key) const;
  /// Checks a required number: it must not be 0, and must equal `actual`, the length of the list
  /// that `counted` names.
  Status count(std::string_view key, std::size_t actual, std::string_view counted) const;

 private:
  const JsonNode* node_;
  std::string place_;
};

/// The result of a reader of one layout. The ranks are in any order, and their numbers are not
/// checked yet.
struct TableDraft {
  std::vector<RankEntry> ranks;
  std::string extra;  ///< text for the digest, beside the ranks: super pods, collective
};

/// The readers of the layouts, each in its own file. `root` is the whole table.
Result<TableDraft> read_server_table(const TableItem& root, bool super_pods);  // 1.0, 1.2
Result<TableDraft> read_node_table(const TableItem& root);                     // 1.1
Result<TableDraft> read_legacy_table(const TableItem& root);                   // no version

/// Adds a rank. An error if the table then has more ranks than kRankTableRanks.
Status add_rank(TableDraft& draft, RankEntry entry, const TableItem& where);

/// The highest device_id of a server: this library gives every rank of a host its own device.
inline constexpr std::uint64_t kLastDevice = 1023;

/// The shortest text of an IP address (IPv4 or IPv6, without a zone). Nothing for any other text,
/// and for 0.0.0.0 and ::, which name no host.
std::optional<std::string> canonical_address(std::string_view text);

}  // namespace hccl::join
