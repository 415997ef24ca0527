hccl_test(host_path_test SOURCES host_path_test.cc LIBS hccl_exec hccl_kernels)
hccl_test(host_path_failure_test SOURCES host_path_failure_test.cc LIBS hccl_exec hccl_kernels)
hccl_test(plan_test SOURCES plan_test.cc LIBS hccl_exec)
hccl_test(probe_test SOURCES probe_test.cc ring_store_test.cc ways_fit_test.cc LIBS hccl_exec hccl_kernels)
