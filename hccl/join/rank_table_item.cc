#include "hccl/join/rank_table_item.h"

#include <algorithm>

#include "hccl/base/socket.h"
#include "hccl/base/text.h"

namespace hccl::join {
namespace {

bool printable(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

std::string_view to_string(JsonNode::Type type) {
  switch (type) {
    case JsonNode::Type::kObject:
      return "an object";
    case JsonNode::Type::kArray:
      return "a list";
    case JsonNode::Type::kString:
      return "a string";
    case JsonNode::Type::kNumber:
      return "a number";
    case JsonNode::Type::kBoolean:
      return "a truth value";
    case JsonNode::Type::kNull:
      return "null";
  }
  return "unknown";
}

Status missing(const std::string& place, std::string_view expected) {
  return Status(Code::kPara, "EI0017: item " + place + " of the rank table is missing. Expected: " +
                                 std::string(expected) + ".");
}

Status wrong_type(const std::string& place, JsonNode::Type type, std::string_view expected) {
  return Status(Code::kPara, "EI0017: item " + place + " of the rank table is " +
                                 std::string(to_string(type)) +
                                 ". Expected: " + std::string(expected) + ".");
}

constexpr std::string_view kString = "a string in quotation marks";

}  // namespace

Status wrong_value(std::string_view value, std::string_view place, std::string_view expected) {
  return Status(Code::kPara, "EI0014: Value \"" + shown(value) + "\" of " + std::string(place) +
                                 " in the rank table is invalid. Expected value: " +
                                 std::string(expected) + ".");
}

std::string TableItem::place(std::string_view key) const {
  if (place_.empty()) return std::string(key);
  return key.empty() ? place_ : place_ + "." + std::string(key);
}

Result<std::optional<std::string>> TableItem::optional_text(std::string_view key) const {
  const JsonNode* found = node_->find(key);
  if (found == nullptr) return std::optional<std::string>();
  if (found->type != JsonNode::Type::kString) return wrong_type(place(key), found->type, kString);
  return std::optional<std::string>(found->text);
}

Result<std::string> TableItem::text(std::string_view key) const {
  HCCL_ASSIGN_OR_RETURN(const auto found, optional_text(key));
  if (!found.has_value()) return missing(place(key), kString);
  return *found;
}

Result<std::string> TableItem::name(std::string_view key, std::size_t low, std::size_t high) const {
  HCCL_ASSIGN_OR_RETURN(const std::string found, text(key));
  if (found.size() < low || found.size() > high || !printable(found)) {
    return wrong_value(
        found, place(key),
        std::to_string(low) + " to " + std::to_string(high) + " printable characters");
  }
  return found;
}

Result<std::uint64_t> TableItem::number(std::string_view key, std::uint64_t low,
                                        std::uint64_t high) const {
  HCCL_ASSIGN_OR_RETURN(const auto found, optional_number(key, low, high));
  if (!found.has_value()) return missing(place(key), kString);
  return *found;
}

Result<std::optional<std::uint64_t>> TableItem::optional_number(std::string_view key,
                                                                std::uint64_t low,
                                                                std::uint64_t high) const {
  HCCL_ASSIGN_OR_RETURN(const auto found, optional_text(key));
  if (!found.has_value()) return std::optional<std::uint64_t>();
  const auto value = decimal(*found);
  if (!value || *value < low || *value > high) {
    return wrong_value(*found, place(key),
                       "decimal digits, " + std::to_string(low) + " to " + std::to_string(high));
  }
  return value;
}

Result<std::vector<std::string>> TableItem::addresses(std::string_view key) const {
  HCCL_ASSIGN_OR_RETURN(const auto found, optional_text(key));
  std::vector<std::string> out;
  if (!found.has_value() || found->empty()) return out;
  for (const std::string_view part : split_at(*found, ',')) {
    const auto address = canonical_address(part);
    if (!address.has_value()) {
      return wrong_value(*found, place(key), "IPv4 or IPv6 addresses with commas between them");
    }
    out.push_back(*address);
  }
  return out;
}

Result<std::string> TableItem::address(std::string_view key) const {
  HCCL_ASSIGN_OR_RETURN(const auto found, optional_text(key));
  if (!found.has_value() || found->empty()) return std::string();
  const auto address = canonical_address(*found);
  if (!address.has_value()) return wrong_value(*found, place(key), "an IPv4 or IPv6 address");
  return *address;
}

Result<std::vector<TableItem>> TableItem::list(std::string_view key) const {
  constexpr std::string_view kExpected = "a list of objects";
  const JsonNode* found = node_->find(key);
  const std::string where = place(key);
  if (found == nullptr) return missing(where, kExpected);
  if (found->type != JsonNode::Type::kArray) return wrong_type(where, found->type, kExpected);
  if (found->children.empty()) return wrong_value("[]", where, "a list that is not empty");
  std::vector<TableItem> out;
  for (const JsonNode& child : found->children) {
    const std::string at = where + "[" + std::to_string(out.size()) + "]";
    if (child.type != JsonNode::Type::kObject) return wrong_type(at, child.type, "an object");
    out.emplace_back(child, at);
  }
  return out;
}

Status TableItem::count(std::string_view key, std::size_t actual, std::string_view counted) const {
  HCCL_ASSIGN_OR_RETURN(const auto value, number(key, 0, ~std::uint64_t{0}));
  if (value != actual || value == 0) {
    return wrong_value(std::to_string(value), place(key),
                       std::to_string(actual) + ", the number of " + std::string(counted));
  }
  return {};
}

Status add_rank(TableDraft& draft, RankEntry entry, const TableItem& where) {
  if (draft.ranks.size() >= kRankTableRanks) {
    return wrong_value("rank " + std::to_string(draft.ranks.size()), where.place(""),
                       "at most " + std::to_string(kRankTableRanks) + " ranks");
  }
  draft.ranks.push_back(std::move(entry));
  return {};
}

std::optional<std::string> canonical_address(std::string_view text) {
  // parse_address() stops at a NUL: the text behind a NUL must not be lost silently.
  if (text.find('\0') != std::string_view::npos) return std::nullopt;
  const auto address = parse_address(std::string(text));
  if (!address.ok()) return std::nullopt;
  std::string shortest = address_text(address->get());
  if (shortest == "0.0.0.0" || shortest == "::") return std::nullopt;  // they name no host
  return shortest;
}

}  // namespace hccl::join
