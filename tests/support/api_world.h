// Ranks as threads of the test program that use only the public C headers.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "hccl/hccl.h"
#include "tests/support/threads.h"

namespace hccl::testing {

/// A communicator of `size` ranks, made with HcclGetRootInfo. All ranks destroy it at the end.
class ApiWorld {
 public:
  /// Joins with a configuration, if there is one.
  explicit ApiWorld(int size, const HcclCommConfig* config = nullptr)
      : comms_(static_cast<std::size_t>(size)) {
    HcclRootInfo info;
    EXPECT_EQ(HcclGetRootInfo(&info), HCCL_SUCCESS) << HcclGetLastErrorText();
    on_all([&](int rank) {
      const auto ranks = static_cast<std::uint32_t>(size), me = static_cast<std::uint32_t>(rank);
      const HcclResult joined =
          config == nullptr ? HcclCommInitRootInfo(ranks, &info, me, &comm(rank))
                            : HcclCommInitRootInfoConfig(ranks, &info, me, config, &comm(rank));
      EXPECT_EQ(joined, HCCL_SUCCESS) << HcclGetLastErrorText();
    });
  }
  ~ApiWorld() {
    on_all([&](int rank) {
      if (comm(rank) == nullptr) return;
      EXPECT_EQ(HcclCommDestroy(comm(rank)), HCCL_SUCCESS) << HcclGetLastErrorText();
    });
  }
  ApiWorld(const ApiWorld&) = delete;
  ApiWorld& operator=(const ApiWorld&) = delete;

  int size() const { return static_cast<int>(comms_.size()); }
  /// A test may set it to null, so that it is not destroyed at the end.
  HcclComm& comm(int rank) { return comms_[static_cast<std::size_t>(rank)]; }

  /// Runs body(rank) on a thread for each rank, and returns when all have returned.
  void on_all(const std::function<void(int)>& body) { on_threads(size(), body); }

  /// Expects that the communicator works: all ranks sum 1, and must get the size.
  void expect_usable() {
    on_all([&](int rank) {
      std::int32_t value = 1;
      EXPECT_EQ(HcclAllReduce(&value, &value, 1, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, comm(rank),
                              nullptr),
                HCCL_SUCCESS)
          << HcclGetLastErrorText();
      EXPECT_EQ(value, size());
      HcclResult error = HCCL_E_INTERNAL;
      EXPECT_EQ(HcclGetCommAsyncError(comm(rank), &error), HCCL_SUCCESS);
      EXPECT_EQ(error, HCCL_SUCCESS);
    });
  }

 private:
  std::vector<HcclComm> comms_;
};

}  // namespace hccl::testing
