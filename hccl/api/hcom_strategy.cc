// The strategies that cut a group's gradients into segments: hccl/hcom.h.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hccl/api/checks.h"
#include "hccl/api/guard.h"
#include "hccl/api/state.h"
#include "hccl/hcom.h"
#include "split/engine/agreement.h"

namespace api = hccl::api;
using api::guard;
using api::State;
using hccl::Code;
using hccl::Result;
using hccl::Status;

namespace {

Result<std::vector<std::uint64_t>> gradient_bytes(const model_feature& feature) {
  std::vector<std::uint64_t> bytes;
  for (uint32_t i = 0; i < feature.gradient_num; ++i) {
    const float size = feature.gradient_size[i];
    if (!(size >= 0) || size > 1e18F) {
      return Status(Code::kPara,
                    "gradient_size[" + std::to_string(i) + "] is " + std::to_string(size));
    }
    bytes.push_back(static_cast<std::uint64_t>(std::llround(size)));
  }
  return bytes;
}

// Computes the time in seconds at which each gradient is ready from the microseconds between
// gradients.
Result<std::vector<double>> ready_times(const model_feature& feature) {
  std::vector<double> ready;
  double time = 0;
  for (uint32_t i = 0; i < feature.gradient_num; ++i) {
    const float gap = feature.gradient_time[i];
    if (!(gap >= 0) || !std::isfinite(gap)) {
      return Status(Code::kPara,
                    "gradient_time[" + std::to_string(i) + "] is " + std::to_string(gap));
    }
    time += 1e-6 * static_cast<double>(gap);
    ready.push_back(time);
  }
  return ready;
}

}  // namespace

extern "C" {

HcclResult HcomSetGradFusionByIndex(const char* group, uint32_t segmentNum,
                                    const uint32_t* idxList) {
  return guard("HcomSetGradFusionByIndex", [&]() -> Status {
    HCCL_CHECK_PTR(idxList);
    HCCL_ASSIGN_OR_RETURN(const std::string name, api::group_name(group));
    return State::get().groups().strategies().set_by_index(name, {idxList, segmentNum});
  });
}

HcclResult HcomSetGradFusionBySize(const char* group, uint32_t segmentNum, const float* sizeList) {
  return guard("HcomSetGradFusionBySize", [&]() -> Status {
    HCCL_CHECK_PTR(sizeList);
    HCCL_ASSIGN_OR_RETURN(const std::string name, api::group_name(group));
    return State::get().groups().strategies().set_by_size(name, {sizeList, segmentNum});
  });
}

HcclResult HcomSetGradFusionAuto(const char* group) {
  return guard("HcomSetGradFusionAuto", [&]() -> Status {
    HCCL_ASSIGN_OR_RETURN(const std::string name, api::group_name(group));
    State::get().groups().strategies().set_auto(name);
    return {};
  });
}

HcclResult HcomGetSplitStrategy(const char* group, const struct model_feature* feature,
                                uint32_t** segmentIdxPtr, uint32_t* len, bool* configured,
                                GradSplitForceMode force, OriginalGraphShapeType shapeType) {
  return guard("HcomGetSplitStrategy", [&]() -> Status {
    HCCL_CHECK_PTR(feature);
    HCCL_CHECK_PTR(segmentIdxPtr);
    HCCL_CHECK_PTR(len);
    HCCL_CHECK_PTR(configured);
    HCCL_CHECK_PTR(feature->model_name);
    HCCL_CHECK_PTR(feature->gradient_size);
    HCCL_CHECK_PTR(feature->gradient_time);
    HCCL_ASSIGN_OR_RETURN(const std::string name, api::group_name(group));
    if (feature->gradient_num == 0) return Status(Code::kPara, "gradient_num is 0");
    if (force != FORCE_NONE && force != FORCE_SIZE) {
      return Status(Code::kPara, "force is " + std::to_string(static_cast<int>(force)));
    }
    if (shapeType != KNOWN_SHAPE && shapeType != UNKNOWN_SHAPE) {
      return Status(Code::kPara, "shapeType is " + std::to_string(static_cast<int>(shapeType)));
    }
    HCCL_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> bytes, gradient_bytes(*feature));
    std::optional<std::uint64_t> buffer;
    if (shapeType == UNKNOWN_SHAPE) {
      HCCL_ASSIGN_OR_RETURN(const auto config, State::get().config());
      buffer = std::uint64_t{config.buffer_mb} << 20;
    }
    HCCL_ASSIGN_OR_RETURN(
        auto resolved,
        State::get().groups().strategies().resolve(
            name, bytes,
            force == FORCE_SIZE ? hccl::split::Force::kSize : hccl::split::Force::kNone, buffer));
    const bool known = shapeType == KNOWN_SHAPE;
    if (resolved.is_default && known && State::get().groups().contains(name)) {
      HCCL_ASSIGN_OR_RETURN(const auto config, State::get().config());
      if (config.split == hccl::Split::kAuto || State::get().groups().strategies().is_auto(name)) {
        HCCL_ASSIGN_OR_RETURN(auto ready, ready_times(*feature));
        HCCL_ASSIGN_OR_RETURN(const auto communicator, State::get().groups().get(name));
        HCCL_ASSIGN_OR_RETURN(resolved.last_indices,
                              hccl::split::plan_together(*communicator, bytes, std::move(ready)));
        resolved.is_default = false;
      }
    }
    auto list = std::make_unique<uint32_t[]>(resolved.last_indices.size());
    std::copy(resolved.last_indices.begin(), resolved.last_indices.end(), list.get());
    *len = static_cast<uint32_t>(resolved.last_indices.size());
    *configured = resolved.is_default;
    *segmentIdxPtr = list.release();
    return {};
  });
}

void HcomFreeSplitStrategy(uint32_t* segmentIdx) { delete[] segmentIdx; }

}  // extern "C"
