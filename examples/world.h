// The ranks that train together. Joins and leaves, and turns every HCCL failure into an exception
// that explains it.
#pragma once

#include <hccl/hccl.h>
#include <hccl/hccl_comm.h>
#include <hccl/hccl_framework.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace examples {

/// A failed HCCL call. what() contains the rank, the call, the text of the code and HCCL's
/// explanation.
class HcclFailure : public std::runtime_error {
 public:
  HcclFailure(const std::string& rank, const char* call, HcclResult result);
  HcclResult code() const { return code_; }

 private:
  HcclResult code_;
};

/// The constructor joins the ranks; without a launcher they are a world of one. Used by one thread
/// at a time.
class World {
 public:
  World();
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  uint32_t rank() const { return rank_; }
  uint32_t size() const { return size_; }
  HcclComm comm() const { return comm_; }

  /// Throws HcclFailure if the call failed. Example: check("HcclBarrier", HcclBarrier(comm,
  /// nullptr)).
  void check(const char* call, HcclResult result) const;

  /// Returns the value reduced over all ranks, on every rank.
  int64_t reduce(int64_t value, HcclReduceOp op) const;
  double sum(double value) const;
  void broadcast(std::vector<float>* data, uint32_t root) const;

  /// Called after a rank has died: continues with the ranks that live. `rebind` moves the users of
  /// the old communicator to the new one, before the old communicator is destroyed.
  void shrink(const std::function<void(HcclComm)>& rebind);

  /// Leaves the world; must be the last call. The destructor leaves too, but cannot report a
  /// failure.
  void leave();

 private:
  void read_rank();

  HcclComm comm_ = nullptr;
  uint32_t rank_ = 0;
  uint32_t size_ = 0;
};

}  // namespace examples
