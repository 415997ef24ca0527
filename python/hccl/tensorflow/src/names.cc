#include "names.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "hccl/hccl.h"
#include "hccl/hccl_framework.h"
#include "kernel.h"

namespace hccl::tf {
namespace {

constexpr const char* kRemedy =
    ": call the same operations in the same order; if both are one operation, give it the same "
    "name on all ranks, or set HCCL_COMPARE_NAMES=0 on all of them";

struct Known {
  std::mutex mutex;
  std::map<std::uint32_t, std::string> names;  // by tag
  std::set<std::pair<HcclComm, std::uint32_t>> compared;
};

// Never destroyed: TensorFlow may run ops until the process ends.
Known& known() {
  static Known* const made = new Known;
  return *made;
}

/// The message in which a rank tells a name: the digest and the last characters.
struct Told {
  std::int64_t digest = 0;
  char text[56] = {};

  Told() = default;
  Told(const std::string& name, std::int64_t of) : digest(of) {
    constexpr std::size_t kMost = sizeof text - 1;
    const std::string end =
        name.size() <= kMost ? name : "..." + name.substr(name.size() - kMost + 3);
    std::memcpy(text, end.data(), end.size());
  }
  std::string name() const { return {text, ::strnlen(text, sizeof text)}; }
};

}  // namespace

Names::Names(OpKernelConstruction* construction) {
  if (!construction->HasAttr("name_digests")) return;
  OP_REQUIRES_OK(construction, construction->GetAttr("names", &names_));
  OP_REQUIRES_OK(construction, construction->GetAttr("name_digests", &digests_));
  if (digests_.empty()) return;
  OP_REQUIRES(construction, digests_.size() == names_.size(),
              ::tensorflow::errors::InvalidArgument("hccl: a name needs a digest"));
  std::uint64_t mixed = 0;
  for (const std::int64_t each : digests_) {
    mixed = (mixed ^ static_cast<std::uint64_t>(each)) * 0x9E3779B97F4A7C15u;
    mixed ^= mixed >> 32;
  }
  tag_ = static_cast<std::uint32_t>(mixed) | 0x80000000;
  constexpr std::size_t kMost = 1 << 16;
  const std::string others =
      names_.size() == 1 ? "" : " and " + std::to_string(names_.size() - 1) + " more";
  const std::lock_guard lock(known().mutex);
  if (known().names.size() < kMost) known().names.emplace(tag_, names_[0] + others);
}

Status Names::compare_once(HcclComm comm) const {
  std::uint32_t ranks = 0;
  const auto count = digests_.size();
  if (count == 0) return absl::OkStatus();
  {
    const std::lock_guard lock(known().mutex);
    if (known().compared.count({comm, tag_}) != 0) return absl::OkStatus();
  }
  TF_RETURN_IF_ERROR(to_status(HcclGetRankSize(comm, &ranks)));
  std::vector<Told> own, all(count * ranks);
  for (std::size_t i = 0; i < count; ++i) own.emplace_back(names_[i], digests_[i]);
  const Status gathered = to_status(HcclAllGather(own.data(), all.data(), count * sizeof(Told),
                                                  HCCL_DATA_TYPE_INT8, comm, nullptr));
  if (!gathered.ok()) {
    return Status(gathered.code(), std::string(gathered.message()) +
                                       " (before the first call of \"" + names_[0] +
                                       "\", to compare its name)");
  }
  for (std::size_t i = 0; i < count * ranks; ++i) {
    const Told &first = all[i % count], &other = all[i];
    if (other.digest == first.digest) continue;
    return ::tensorflow::errors::InvalidArgument("hccl: the ranks' calls differ: rank 0 called \"",
                                                 first.name(), "\" where rank ", i / count,
                                                 " called \"", other.name(), "\"", kRemedy);
  }
  const std::lock_guard lock(known().mutex);
  known().compared.emplace(comm, tag_);
  return absl::OkStatus();
}

std::string with_names(std::string text) {
  constexpr const char* kTag = "tag #";
  constexpr std::size_t kDigits = 8;
  const std::size_t tag_length = std::strlen(kTag) + kDigits;
  bool found = false;
  for (std::size_t at = 0; (at = text.find(kTag, at)) != std::string::npos; ++at) {
    const std::string digits = text.substr(at + std::strlen(kTag), kDigits);
    const auto tag = static_cast<std::uint32_t>(std::strtoul(digits.c_str(), nullptr, 16));
    const std::lock_guard lock(known().mutex);
    const auto name = known().names.find(tag);
    if (name == known().names.end()) continue;
    text.replace(at, tag_length, "named \"" + name->second + "\"");
    found = true;
  }
  return found && text.find("EI0005") != std::string::npos ? text + kRemedy : text;
}

}  // namespace hccl::tf
