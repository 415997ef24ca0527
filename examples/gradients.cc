#include "gradients.h"

#include <utility>

namespace examples {

Gradients::Gradients(const World& world, const std::vector<Tensor>& tensors, const Options& options)
    : world_(world) {
  const size_t total = tensors.back().offset + tensors.back().count;
  if (!options.scattered) memory_.emplace_back(total);
  std::vector<HcclFusionGradient> gradients;
  for (const Tensor& tensor : tensors) {
    if (options.scattered) memory_.emplace_back(tensor.count);
    data_.push_back(options.scattered ? memory_.back().data() : &memory_[0][tensor.offset]);
    gradients.push_back({tensor.name.c_str(), data_.back(), tensor.count});
  }

  HcclFusionOptions how = {};
  how.dataType = HCCL_DATA_TYPE_FP32;
  how.op = HCCL_REDUCE_SUM;
  how.hcomParallel = options.hcom_parallel ? 1 : 0;
  if (!options.split_by_size.empty()) {
    how.percentages = options.split_by_size.data();
    how.segmentNum = static_cast<uint32_t>(options.split_by_size.size());
  } else if (!options.split_by_idx.empty()) {
    how.lastIndices = options.split_by_idx.data();
    how.segmentNum = static_cast<uint32_t>(options.split_by_idx.size());
  }
  world_.check("HcclFusionCreate",
               HcclFusionCreate(world_.comm(), gradients.data(),
                                static_cast<uint32_t>(gradients.size()), &how, &fusion_));
}

Gradients::~Gradients() {
  if (fusion_ != nullptr) HcclFusionDestroy(fusion_);
}

void Gradients::ready(uint32_t index) {
  world_.check("HcclFusionReady", HcclFusionReady(fusion_, index));
}

void Gradients::mark(HcclFusionPoint point) {
  world_.check("HcclFusionMark", HcclFusionMark(fusion_, point));
}

void Gradients::wait() { world_.check("HcclFusionWait", HcclFusionWait(fusion_)); }

void Gradients::rebind(HcclComm comm) {
  world_.check("HcclFusionRebind", HcclFusionRebind(fusion_, comm));
}

std::string Gradients::segments() const {
  std::vector<uint32_t> last(data_.size());
  auto count = static_cast<uint32_t>(last.size());
  world_.check("HcclFusionGetSegments", HcclFusionGetSegments(fusion_, last.data(), &count));
  std::string text;
  uint32_t first = 0;
  for (uint32_t k = 0; k < count; ++k) {
    if (k > 0) text += ' ';
    text += '[' + std::to_string(first) + ',' + std::to_string(last[k]) + ']';
    first = last[k] + 1;
  }
  return text;
}

std::string Gradients::trace_text() const {
  const char* text = nullptr;
  world_.check("HcclFusionTraceText", HcclFusionTraceText(fusion_, &text));
  return text;
}

void Gradients::write_trace(const std::string& path) const {
  world_.check("HcclFusionTraceWrite", HcclFusionTraceWrite(fusion_, path.c_str()));
}

void Gradients::close() {
  world_.check("HcclFusionDestroy", HcclFusionDestroy(std::exchange(fusion_, nullptr)));
}

}  // namespace examples
