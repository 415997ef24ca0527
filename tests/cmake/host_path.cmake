hccl_test(host_path_test SOURCES host_path_test.cc LIBS hccl_exec hccl_kernels)
