#include "communicator.h"

NB_MODULE(_hccl, module) {
  // Programs keep communicators until the end of the process: no leak warnings for them.
  nanobind::set_leak_warnings(false);
  hccl::python::bind_pending(module);
  hccl::python::bind_memory(module);
  hccl::python::bind_communicator(module);
  hccl::python::bind_fusion(module);
  hccl::python::bind_groups(module);
}
