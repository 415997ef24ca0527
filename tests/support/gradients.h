// Gradients to fuse.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "hccl/hccl_fusion.h"

namespace hccl::testing {

using Indices = std::vector<std::uint32_t>;
using Floats = std::vector<float>;

/// The gradients of one rank: adjacent in one array, or each in an array of its own.
class Gradients {
 public:
  Gradients(const std::vector<std::size_t>& sizes, bool contiguous) : sizes_(sizes) {
    if (contiguous) {
      memory_.emplace_back(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
    } else {
      for (const std::size_t size : sizes) memory_.emplace_back(size);
    }
    float* next = memory_.empty() ? nullptr : memory_.front().data();
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      names_.push_back("layer" + std::to_string(i));
      float* const data = contiguous ? next : memory_[i].data();
      list_.push_back({nullptr, sizes[i] == 0 ? nullptr : data, sizes[i]});
      next += contiguous ? sizes[i] : 0;
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) list_[i].name = names_[i].c_str();
  }

  const HcclFusionGradient* list() const { return list_.data(); }
  std::uint32_t size() const { return static_cast<std::uint32_t>(list_.size()); }
  std::size_t count(std::size_t i) const { return list_[i].count; }
  float* data(std::size_t i) const { return static_cast<float*>(list_[i].data); }
  /// Sets element e to value(e); elements are numbered over all gradients.
  void fill(const std::function<float(std::size_t)>& value) {
    std::size_t e = 0;
    for (const auto& each : list_)
      for (std::size_t i = 0; i < each.count; ++i) static_cast<float*>(each.data)[i] = value(e++);
  }
  Floats values() const {
    Floats all;
    for (const auto& each : list_) {
      const auto* data = static_cast<const float*>(each.data);
      if (each.count != 0) all.insert(all.end(), data, data + each.count);
    }
    return all;
  }

 private:
  std::vector<std::size_t> sizes_;
  std::vector<Floats> memory_;
  std::vector<std::string> names_;
  std::vector<HcclFusionGradient> list_;
};

inline HcclFusion create(HcclComm comm, const Gradients& gradients,
                         const HcclFusionOptions* options) {
  HcclFusion fusion = nullptr;
  EXPECT_EQ(HcclFusionCreate(comm, gradients.list(), gradients.size(), options, &fusion),
            HCCL_SUCCESS)
      << HcclGetLastErrorText();
  return fusion;
}

inline Indices segments_of(HcclFusion fusion) {
  std::uint32_t number = 0;
  EXPECT_EQ(HcclFusionGetSegments(fusion, nullptr, &number), HCCL_SUCCESS);
  Indices list(number);
  EXPECT_EQ(HcclFusionGetSegments(fusion, list.data(), &number), HCCL_SUCCESS);
  return list;
}

}  // namespace hccl::testing
