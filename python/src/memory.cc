// Device memory for arrays: hccl/hccl_framework.h.
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <tuple>

#include "communicator.h"

namespace hccl::python {
namespace {

using Bytes = nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>;

// The last array that uses the memory frees it, possibly while the process exits or in a forked
// child.
Bytes allocate(std::size_t bytes) {
  void* memory = nullptr;
  check(HcclMemAlloc(&memory, bytes));
  const nb::capsule owner(memory,
                          [](void* block) noexcept { static_cast<void>(HcclMemFree(block)); });
  return Bytes(memory, {bytes}, owner);
}

std::tuple<std::size_t, std::size_t, std::size_t, std::size_t, std::size_t> memory_info() {
  HcclMemInfo info;
  check(HcclMemGetInfo(&info));
  return {info.inUse, info.cached, info.cacheLimit, info.heapUsed, info.heapTotal};
}

}  // namespace

void bind_memory(nb::module_& module) {
  module.def("allocate", &allocate, nb::arg("bytes"));
  module.def("memory_info", &memory_info);
}

}  // namespace hccl::python
