#include "communicator.h"

NB_MODULE(_hccl, module) {
  // No warnings, because programs may keep communicators until the end of the process.
  nanobind::set_leak_warnings(false);
  hccl::python::bind_pending(module);
  hccl::python::bind_memory(module);
  hccl::python::bind_communicator(module);
  hccl::python::bind_fusion(module);
  hccl::python::bind_groups(module);
}
