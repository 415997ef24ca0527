add_executable(kernels_bench kernels_bench.cc)
hccl_warnings(kernels_bench)
target_link_libraries(kernels_bench PRIVATE hccl_kernels benchmark::benchmark)
