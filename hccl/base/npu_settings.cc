#include "hccl/base/npu_settings.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <set>
#include <vector>

#include "hccl/base/config_log.h"
#include "hccl/base/text.h"

namespace hccl {
namespace {

std::string_view trimmed(std::string_view part) {
  while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
  while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
  return part;
}

std::vector<std::string_view> parts_of(std::string_view all) {
  std::vector<std::string_view> parts = split_at(all, ',');
  for (std::string_view& part : parts) part = trimmed(part);
  return parts;
}

}  // namespace

bool is_retry_enable(std::string value) {
  std::erase(value, ' ');
  if (value.empty()) return true;
  std::set<std::string_view> seen;
  for (const std::string_view part : parts_of(value)) {
    if (part.size() != 4 || part[0] != 'L' || part[1] < '0' || part[1] > '2' || part[2] != ':' ||
        (part[3] != '0' && part[3] != '1') || !seen.insert(part.substr(0, 2)).second) {
      return false;
    }
  }
  return true;
}

bool is_retry_params(std::string_view value) {
  struct Part {
    std::string_view name;
    std::uint32_t low;
    std::uint32_t high;
  };
  constexpr std::array<Part, 3> kParts{
      {{"MaxCnt:", 1, 10}, {"HoldTime:", 0, 60000}, {"IntervalTime:", 0, 60000}}};
  if (value.empty()) return true;
  const auto parts = parts_of(value);
  if (parts.size() < kParts.size()) return false;
  for (std::size_t i = 0; i < kParts.size(); ++i) {
    std::string_view part = parts[i];
    if (!part.starts_with(kParts[i].name)) return false;
    part.remove_prefix(kParts[i].name.size());
    std::uint32_t number = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    const bool ended = end == part.data() + part.size() || i + 1 == kParts.size();
    if (error != std::errc() || !ended || number < kParts[i].low || number > kParts[i].high) {
      return false;
    }
  }
  return true;
}

Status check_npu_settings(const std::function<std::optional<std::string>(const char*)>& get) {
  struct Number {
    const char* name;
    std::uint64_t low;
    std::uint64_t high;
    std::uint64_t step;
  };
  constexpr std::array<Number, 5> kNumbers{{{"HCCL_RDMA_TC", 0, 255, 4},
                                            {"HCCL_RDMA_SL", 0, 7, 1},
                                            {"HCCL_RDMA_TIMEOUT", 5, 24, 1},
                                            {"HCCL_RDMA_RETRY_CNT", 1, 7, 1},
                                            {"HCCL_RDMA_QPS_PER_CONNECTION", 1, 32, 1}}};
  for (const auto& [name, low, high, step] : kNumbers) {
    const auto text = get(name);
    const auto value = text ? decimal(*text) : low;
    if (value && *value >= low && *value <= high && *value % step == 0) continue;
    return invalid(name, *text,
                   (step == 1 ? "an integer " : "a multiple of " + std::to_string(step) + ", ") +
                       std::to_string(low) + " to " + std::to_string(high));
  }
  if (const auto v = get("HCCL_OP_RETRY_ENABLE"); v && !is_retry_enable(*v)) {
    return invalid("HCCL_OP_RETRY_ENABLE", *v, kRetryEnableExpected);
  }
  if (const auto v = get("HCCL_OP_RETRY_PARAMS"); v && !is_retry_params(*v)) {
    return invalid("HCCL_OP_RETRY_PARAMS", *v, kRetryParamsExpected);
  }
  return {};
}

}  // namespace hccl
