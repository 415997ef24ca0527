// Gradient fusion for frameworks: hccl/hccl_fusion.h.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hccl/api/checks.h"
#include "hccl/api/entry.h"
#include "hccl/api/guard.h"
#include "hccl/api/overlaps.h"
#include "hccl/api/state.h"
#include "hccl/hccl_fusion.h"
#include "hccl/hcom.h"
#include "split/engine/overlap.h"

namespace api = hccl::api;
using api::guard;
using api::State;
using hccl::Code;
using hccl::Result;
using hccl::Status;
using hccl::split::Overlap;

namespace hccl::api {

struct Fusion {
  std::unique_ptr<Overlap> overlap;
  std::string text;                         // result of HcclFusionTraceText
  std::vector<HcclFusionMessage> messages;  // result of HcclFusionPlanNewestFirst
};

}  // namespace hccl::api

namespace {

template <class Body>
HcclResult on_fusion(const char* function, HcclFusion fusion, Body&& body) noexcept {
  return api::on_object(function, &State::fusions, fusion, std::forward<Body>(body));
}

struct Chosen {
  hccl::split::Segments segments;
  Overlap::Mode mode = Overlap::Mode::kFixed;
};

Result<Chosen> choose_segments(const HcclFusionOptions& options, const std::string& group,
                               const std::vector<std::uint64_t>& bytes) {
  if (options.lastIndices != nullptr && options.percentages != nullptr) {
    return Status(Code::kPara, "options has both lastIndices and percentages");
  }
  HCCL_ASSIGN_OR_RETURN(const auto config, State::get().config());
  Chosen chosen;
  if (config.split == hccl::Split::kTrace) chosen.mode = Overlap::Mode::kTraced;
  if (options.lastIndices != nullptr) {
    HCCL_ASSIGN_OR_RETURN(chosen.segments, hccl::split::segments_by_index(
                                               bytes, {options.lastIndices, options.segmentNum}));
    return chosen;
  }
  if (options.percentages != nullptr) {
    HCCL_ASSIGN_OR_RETURN(chosen.segments, hccl::split::segments_by_size(
                                               bytes, {options.percentages, options.segmentNum}));
    return chosen;
  }
  auto& strategies = State::get().groups().strategies();
  HCCL_ASSIGN_OR_RETURN(auto resolved, strategies.resolve(group, bytes));
  if (resolved.is_default && (config.split == hccl::Split::kAuto || strategies.is_auto(group)))
    chosen.mode = Overlap::Mode::kAuto;
  chosen.segments = std::move(resolved.last_indices);
  return chosen;
}

Status create(std::shared_ptr<hccl::core::Communicator> communicator,
              const HcclFusionGradient* gradients, uint32_t gradientNum,
              const HcclFusionOptions* options, HcclFusion* fusion) {
  HCCL_CHECK_PTR(gradients);
  HCCL_CHECK_PTR(fusion);
  if (gradientNum == 0) return Status(Code::kPara, "gradientNum is 0");
  HcclFusionOptions chosen{};
  chosen.dataType = HCCL_DATA_TYPE_FP32;
  if (options != nullptr) chosen = *options;
  HCCL_ASSIGN_OR_RETURN(const auto type, api::check_type(chosen.dataType));
  HCCL_ASSIGN_OR_RETURN(const auto op, api::check_reduce(chosen.op, type));
  std::vector<Overlap::Gradient> list;
  std::vector<std::uint64_t> bytes;
  std::vector<api::Extent> extents;
  for (uint32_t i = 0; i < gradientNum; ++i) {
    const HcclFusionGradient& each = gradients[i];
    const std::string where = "gradients[" + std::to_string(i) + "]";
    HCCL_RETURN_IF_ERROR(api::check_count(each.count, (where + ".count").c_str()));
    if (each.data == nullptr && each.count != 0)
      return api::null_pointer((where + ".data").c_str());
    list.push_back(
        {each.name == nullptr ? "" : each.name, static_cast<std::byte*>(each.data), each.count});
    bytes.push_back(each.count * hccl::size_of(type));
    extents.push_back(
        {api::address(each.data), bytes.back(), true, "gradient", static_cast<int>(i)});
  }
  HCCL_RETURN_IF_ERROR(api::check_apart(*communicator, std::move(extents),
                                        "pass each gradient once, in memory of its own"));
  const bool given = chosen.lastIndices != nullptr || chosen.percentages != nullptr;
  HCCL_ASSIGN_OR_RETURN(std::string group,
                        api::group_name(given ? HCCL_WORLD_GROUP : chosen.group));
  HCCL_ASSIGN_OR_RETURN(auto cut, choose_segments(chosen, group, bytes));
  auto made = std::make_shared<api::Fusion>();
  HCCL_ASSIGN_OR_RETURN(
      made->overlap,
      Overlap::create(std::move(communicator), std::move(list), type, op, std::move(cut.segments),
                      chosen.hcomParallel != 0, cut.mode, std::move(group)));
  *fusion = State::get().fusions().add(std::move(made));
  return {};
}

}  // namespace

extern "C" {

HcclResult HcclFusionCreate(HcclComm comm, const HcclFusionGradient* gradients,
                            uint32_t gradientNum, const HcclFusionOptions* options,
                            HcclFusion* fusion) {
  static constexpr const char* kFunction = "HcclFusionCreate";
  return guard(kFunction, [&]() -> Status {
    HCCL_ASSIGN_OR_RETURN(auto communicator, State::get().communicators().get_shared(comm));
    const Status made = create(communicator, gradients, gradientNum, options, fusion);
    // The other ranks may wait for this rank's part of the first step.
    if (!made.ok()) api::report_refusal(*communicator, made, kFunction, [] {});
    return made;
  });
}

HcclResult HcclFusionRebind(HcclFusion fusion, HcclComm comm) {
  return on_fusion("HcclFusionRebind", fusion, [&](api::Fusion& found) -> Status {
    HCCL_ASSIGN_OR_RETURN(auto communicator, State::get().communicators().get_shared(comm));
    HCCL_ASSIGN_OR_RETURN(found.overlap, found.overlap->rebound(std::move(communicator)));
    return {};
  });
}

HcclResult HcclFusionReady(HcclFusion fusion, uint32_t index) {
  return on_fusion("HcclFusionReady", fusion,
                   [&](api::Fusion& found) -> Status { return found.overlap->ready(index); });
}

HcclResult HcclFusionWait(HcclFusion fusion) {
  return on_fusion("HcclFusionWait", fusion,
                   [&](api::Fusion& found) -> Status { return found.overlap->wait(); });
}

HcclResult HcclFusionWaitSegment(HcclFusion fusion, uint32_t segment) {
  return on_fusion("HcclFusionWaitSegment", fusion, [&](api::Fusion& found) -> Status {
    return found.overlap->wait_segment(segment);
  });
}

HcclResult HcclFusionGetSegments(HcclFusion fusion, uint32_t* lastIndices, uint32_t* segmentNum) {
  return on_fusion("HcclFusionGetSegments", fusion, [&](api::Fusion& found) -> Status {
    HCCL_CHECK_PTR(segmentNum);
    const auto& segments = found.overlap->segments();
    const uint32_t capacity = *segmentNum;
    *segmentNum = static_cast<uint32_t>(segments.size());
    if (lastIndices == nullptr && capacity == 0) return {};  // the caller asks for the number only
    HCCL_CHECK_PTR(lastIndices);
    if (capacity < segments.size()) {
      return Status(Code::kPara, "lastIndices has room for " + std::to_string(capacity) + " of " +
                                     std::to_string(segments.size()) + " segments");
    }
    std::copy(segments.begin(), segments.end(), lastIndices);
    return {};
  });
}

HcclResult HcclFusionPlanNewestFirst(HcclFusion fusion, HcclFusionOrder* order) {
  return on_fusion("HcclFusionPlanNewestFirst", fusion, [&](api::Fusion& found) -> Status {
    HCCL_CHECK_PTR(order);
    HCCL_ASSIGN_OR_RETURN(const auto planned, found.overlap->newest_first());
    found.messages.clear();
    for (const auto& each : planned.messages) found.messages.push_back({each.begin, each.end});
    *order = {found.messages.data(), static_cast<uint32_t>(found.messages.size()), planned.in_order,
              planned.late};
    return {};
  });
}

HcclResult HcclFusionMark(HcclFusion fusion, HcclFusionPoint point) {
  return on_fusion("HcclFusionMark", fusion, [&](api::Fusion& found) -> Status {
    switch (point) {
      case HCCL_FUSION_FP_START:
        found.overlap->mark(Overlap::Point::kFpStart);
        return {};
      case HCCL_FUSION_BP_END:
        found.overlap->mark(Overlap::Point::kBpEnd);
        return {};
      case HCCL_FUSION_ITERATION_END:
        found.overlap->mark(Overlap::Point::kIterationEnd);
        return {};
    }
    return Status(Code::kPara, "point " + std::to_string(static_cast<int>(point)) + " is unknown");
  });
}

HcclResult HcclFusionTraceText(HcclFusion fusion, const char** text) {
  return on_fusion("HcclFusionTraceText", fusion, [&](api::Fusion& found) -> Status {
    HCCL_CHECK_PTR(text);
    found.text = found.overlap->recording().timeline();
    *text = found.text.c_str();
    return {};
  });
}

HcclResult HcclFusionTraceWrite(HcclFusion fusion, const char* path) {
  return on_fusion("HcclFusionTraceWrite", fusion, [&](api::Fusion& found) -> Status {
    HCCL_CHECK_PTR(path);
    return hccl::split::write_trace(found.overlap->recording().trace(), path);
  });
}

HcclResult HcclFusionDestroy(HcclFusion fusion) {
  return guard("HcclFusionDestroy", [&]() -> Status {
    const auto anyhow = [](const api::Fusion&) { return Status(); };
    return State::get().fusions().take(fusion, anyhow).status();
  });
}

}  // extern "C"
