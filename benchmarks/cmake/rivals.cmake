# The programs for the comparison with other libraries (scripts/bench.sh) and with an older library (compare.py) that
# need only this project. rivals/install.py builds the other programs, each against its rival.
set(method rivals/method.c rivals/page.c rivals/values.c)
add_library(bench_method SHARED ${method})   # loaded by rivals/gloo_bench.py
hccl_warnings(bench_method)
set_target_properties(bench_method PROPERTIES C_VISIBILITY_PRESET default)
add_executable(hccl_bench rivals/hccl_bench.cc ${method})
hccl_warnings(hccl_bench)
target_include_directories(hccl_bench PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(hccl_bench PRIVATE hccl::hccl Threads::Threads)
add_custom_target(rivals_bench DEPENDS bench_method hccl_bench)
