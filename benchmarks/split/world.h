// This rank, its communicator, and its computation: a loop that keeps the core busy.
#pragma once

#include <acl/acl_rt.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "hccl/hccl.h"
#include "hccl/hccl_comm.h"
#include "hccl/hccl_fusion.h"

namespace split_bench {

/// Throws an exception with the library's text if the call failed.
void check(HcclResult result, const char* call);

double now();  ///< seconds

class World {
 public:
  World();  ///< joins the ranks that the launcher started
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  HcclComm comm() const { return comm_; }
  std::uint32_t rank() const { return rank_; }
  std::uint32_t size() const { return size_; }
  void barrier() const { check(HcclBarrier(comm_, nullptr), "HcclBarrier"); }
  std::vector<double> reduce(std::vector<double> values, HcclReduceOp op) const;
  /// Returns the values of rank 0 on all ranks.
  std::vector<std::uint32_t> from_root(std::vector<std::uint32_t> values) const;

 private:
  HcclComm comm_ = nullptr;
  std::uint32_t rank_ = 0;
  std::uint32_t size_ = 0;
};

/// Keeps a core busy for given times, without memory accesses. Counts the thread's CPU time:
/// another thread that takes the core delays the end, but a core whose speed changes does not.
class Computer {
 public:
  /// share: the fraction of a core, at most 1, that a rank gets while all ranks compute; see
  /// until().
  explicit Computer(double share) : share_(share) {}
  void begin();                ///< starts an iteration
  void until(double seconds);  ///< computes until the CPU time is seconds * share

 private:
  double share_;
  double begun_ = 0;  // CPU time
};

}  // namespace split_bench
