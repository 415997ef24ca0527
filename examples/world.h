// The ranks that train together: joins them, leaves them, and turns every HCCL failure into one
// exception with everything a person needs to know.
#pragma once

#include <hccl/hccl.h>
#include <hccl/hccl_comm.h>

#include <stdexcept>
#include <string>

namespace examples {

/// A failed HCCL call. what(): the rank, the call, the words of the code and HCCL's own
/// explanation.
class HcclFailure : public std::runtime_error {
 public:
  HcclFailure(const std::string& rank, const char* call, HcclResult result);
  HcclResult code() const { return code_; }

 private:
  HcclResult code_;
};

/// Joins in the constructor; alone, it is a world of one. Used by one thread at a time.
class World {
 public:
  World();
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  uint32_t rank() const { return rank_; }
  uint32_t size() const { return size_; }
  HcclComm comm() const { return comm_; }

  /// Throws HcclFailure unless the call succeeded: check("HcclBarrier", HcclBarrier(comm,
  /// nullptr)).
  void check(const char* call, HcclResult result) const;

  /// This value reduced over all ranks, on every rank.
  int64_t reduce(int64_t value, HcclReduceOp op) const;
  double sum(double value) const;

  /// Leaves; the last call. The destructor leaves too, but can report no failure.
  void leave();

 private:
  HcclComm comm_ = nullptr;
  uint32_t rank_ = 0;
  uint32_t size_ = 0;
};

}  // namespace examples
