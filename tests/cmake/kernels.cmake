find_package(hwy REQUIRED)

hccl_test(kernels_test SOURCES kernels_test.cc LIBS hccl_kernels hwy::hwy)
