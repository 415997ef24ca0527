// Times the overhead of the PyTorch backend over the library's call, without Python. bench.py
// --overhead uses this file.
#include <torch/extension.h>

#include <algorithm>
#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "hccl/hccl.h"

namespace {

constexpr int kBatch = 5000;

template <typename Call>
double microseconds(const Call& call) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kBatch; ++i) call();
  const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - begin;
  return taken.count() / kBatch;
}

// Makes a second communicator of the same ranks. A tensor carries the secret to all ranks.
HcclComm join(c10d::Backend& backend) {
  HcclRootInfo info = {};
  if (backend.getRank() == 0) TORCH_CHECK(HcclGetRootInfo(&info) == HCCL_SUCCESS);
  std::vector<at::Tensor> bytes = {at::from_blob(info.internal, sizeof info.internal, at::kByte)};
  backend.broadcast(bytes, {})->wait();
  HcclComm comm = nullptr;
  TORCH_CHECK(HcclCommInitRootInfo(static_cast<uint32_t>(backend.getSize()), &info,
                                   static_cast<uint32_t>(backend.getRank()),
                                   &comm) == HCCL_SUCCESS);
  return comm;
}

// Returns the medians of the backend's time and of the library's time. Their batches take turns.
std::pair<double, double> measure(const c10::intrusive_ptr<c10d::Backend>& backend,
                                  at::Tensor tensor, int rounds) {
  HcclComm comm = join(*backend);
  std::vector<at::Tensor> tensors = {tensor};
  c10d::AllreduceOptions options;
  options.asyncOp = false;
  const auto count = static_cast<uint64_t>(tensor.numel());
  std::vector<double> ours;
  std::vector<double> library;
  for (int round = 0; round < rounds; ++round) {
    ours.push_back(microseconds([&] { backend->allreduce(tensors, options)->wait(); }));
    library.push_back(microseconds([&] {
      TORCH_CHECK(HcclAllReduce(tensor.data_ptr(), tensor.data_ptr(), count, HCCL_DATA_TYPE_FP32,
                                HCCL_REDUCE_SUM, comm, nullptr) == HCCL_SUCCESS);
    }));
  }
  HcclCommDestroy(comm);
  std::sort(ours.begin(), ours.end());
  std::sort(library.begin(), library.end());
  return {ours[ours.size() / 2], library[library.size() / 2]};
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("measure", &measure, pybind11::call_guard<pybind11::gil_scoped_release>());
}
