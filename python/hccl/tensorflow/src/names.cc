#include "names.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "chain.h"
#include "hccl/hccl.h"
#include "hccl/hccl_framework.h"
#include "kernel.h"

namespace hccl::tf {
namespace {

constexpr const char* kRemedy =
    ": call the same operations in the same order; if both are one operation, give it the same "
    "shape and name on all ranks, or set HCCL_COMPARE_NAMES=0 on all of them to compare no names";
constexpr std::uint32_t kTagged = 0x80000000;  // the highest bit of each tag

struct Known {
  std::mutex mutex;
  std::map<std::uint32_t, std::string> texts;  // by tag: the description of the call in errors
  std::set<std::pair<HcclComm, std::uint32_t>> compared;
};

// Never destroyed: TensorFlow may run ops until the process ends.
Known& known() {
  static Known* const made = new Known;
  return *made;
}

std::uint64_t mixed(std::uint64_t digest, std::int64_t number) {
  digest = (digest ^ static_cast<std::uint64_t>(number)) * 0x9E3779B97F4A7C15u;
  return digest ^ digest >> 32;
}

/// Stores the text of a tag for errors.
void remember(std::uint32_t tag, const std::string& text) {
  constexpr std::size_t kMost = 1 << 16;
  if (known().texts.size() < kMost) known().texts.emplace(tag, text);
}

/// A name as ranks exchange it: the digest and the last characters.
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

std::uint64_t mixed(std::uint64_t digest, const TensorShape& shape) {
  digest = mixed(digest, shape.dims());
  for (int i = 0; i < shape.dims(); ++i) digest = mixed(digest, shape.dim_size(i));
  return digest;
}

Names::Names(OpKernelConstruction* construction) {
  OP_REQUIRES_OK(construction, construction->GetAttr("names", &names_));
  OP_REQUIRES_OK(construction, construction->GetAttr("name_digests", &digests_));
  std::int64_t call = 0;
  ordered_ = construction->HasAttr(kChained) || !construction->GetAttr(kCall, &call).ok();
  std::string also;
  OP_REQUIRES_OK(construction, construction->GetAttr("also", &also));
  std::uint64_t digest = 0;
  if (!digests_.empty()) {
    OP_REQUIRES(construction, digests_.size() == names_.size(),
                ::tensorflow::errors::InvalidArgument("hccl: a name needs a digest"));
    for (const std::int64_t each : digests_) digest = mixed(digest, each);
    const std::string others =
        names_.size() == 1 ? "" : " and " + std::to_string(names_.size() - 1) + " more";
    text_ = "named \"" + names_[0] + others + "\"";
  } else if (!ordered_) {
    digest = mixed(digest, call);
    text_ = "number " + std::to_string(call) + " of its graph (in which TensorFlow keeps no order)";
  }
  if (!also.empty()) {
    for (const char each : also) digest = mixed(digest, each);
    text_ += (text_.empty() ? "" : ", ") + also;
  }
  if (text_.empty()) return;
  tag_ = static_cast<std::uint32_t>(digest) | kTagged;
  const std::lock_guard lock(known().mutex);
  remember(tag_, text_);
}

std::uint32_t Names::tag(const std::vector<TensorShape>& shapes, std::int64_t iteration) const {
  if (shapes.empty() && ordered_) return tag_;
  std::uint64_t digest = tag_;
  if (!ordered_) digest = mixed(digest, iteration);
  for (const TensorShape& shape : shapes) digest = mixed(digest, shape);
  const std::uint32_t tag = static_cast<std::uint32_t>(digest) | kTagged;
  const std::lock_guard lock(known().mutex);
  if (known().texts.count(tag) != 0) return tag;
  std::string text = text_;
  if (!ordered_ && iteration > 0) text += " in iteration " + std::to_string(iteration);
  if (!shapes.empty()) {
    text += std::string(text.empty() ? "" : " ") + "of shape " + shapes[0].DebugString();
    text += shapes.size() == 1 ? "" : " and more";
  }
  remember(tag, text);
  return tag;
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
    constexpr std::size_t kMost = 8;
    std::string list;
    for (std::size_t i = 0; i < std::min(count, kMost); ++i)
      list += (i == 0 ? "\"" : ", \"") + names_[i] + "\"";
    if (count > kMost) list += " and " + std::to_string(count - kMost) + " more";
    return Status(gathered.code(), std::string(gathered.message()) +
                                       " (before the first call, ranks compare the names of its " +
                                       "tensors; here " + std::to_string(count) + ": " + list +
                                       ")");
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
    const auto call = known().texts.find(tag);
    if (call == known().texts.end()) continue;
    text.replace(at, tag_length, call->second);
    found = true;
  }
  return found && text.find("EI0005") != std::string::npos ? text + kRemedy : text;
}

}  // namespace hccl::tf
