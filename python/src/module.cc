#include "communicator.h"

NB_MODULE(_hccl, module) {
  // Programs leave communicators to the end of the process: no reason to be told of them.
  nanobind::set_leak_warnings(false);
  hccl::python::bind_communicator(module);
  hccl::python::bind_fusion(module);
  hccl::python::bind_groups(module);
}
