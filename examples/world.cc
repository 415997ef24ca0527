#include "world.h"

#include <utility>

namespace examples {

HcclFailure::HcclFailure(const std::string& rank, const char* call, HcclResult result)
    : std::runtime_error("rank " + rank + ": " + call + " failed: " + HcclGetErrorString(result) +
                         ": " + HcclGetLastErrorText()),
      code_(result) {}

World::World() {
  const HcclResult joined = HcclCommInitLauncher(&comm_);
  if (joined != HCCL_SUCCESS) throw HcclFailure("unknown", "HcclCommInitLauncher", joined);
  try {
    read_rank();
  } catch (...) {
    HcclCommDestroy(comm_);
    throw;
  }
}

void World::read_rank() {
  check("HcclGetRankId", HcclGetRankId(comm_, &rank_));
  check("HcclGetRankSize", HcclGetRankSize(comm_, &size_));
}

void World::shrink(const std::function<void(HcclComm)>& rebind) {
  HcclComm smaller = nullptr;
  check("HcclCommShrink", HcclCommShrink(comm_, nullptr, 0, nullptr, &smaller));
  rebind(smaller);
  check("HcclCommDestroy", HcclCommDestroy(std::exchange(comm_, smaller)));
  read_rank();
}

World::~World() {
  if (comm_ != nullptr) HcclCommDestroy(comm_);
}

void World::check(const char* call, HcclResult result) const {
  if (result != HCCL_SUCCESS) throw HcclFailure(std::to_string(rank_), call, result);
}

int64_t World::reduce(int64_t value, HcclReduceOp op) const {
  check("HcclAllReduce",
        HcclAllReduce(&value, &value, 1, HCCL_DATA_TYPE_INT64, op, comm_, nullptr));
  return value;
}

double World::sum(double value) const {
  check("HcclAllReduce",
        HcclAllReduce(&value, &value, 1, HCCL_DATA_TYPE_FP64, HCCL_REDUCE_SUM, comm_, nullptr));
  return value;
}

void World::broadcast(std::vector<float>* data, uint32_t root) const {
  check("HcclBroadcast",
        HcclBroadcast(data->data(), data->size(), HCCL_DATA_TYPE_FP32, root, comm_, nullptr));
}

void World::leave() { check("HcclCommDestroy", HcclCommDestroy(std::exchange(comm_, nullptr))); }

}  // namespace examples
