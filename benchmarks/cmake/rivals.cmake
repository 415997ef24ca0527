# The comparison with other libraries (scripts/bench.sh): what needs nothing but this project. The rivals'
# own programs are built by rivals/install.py, against each rival.
set(method rivals/method.c rivals/probe.c rivals/values.c)
add_library(bench_method SHARED ${method})   # loaded by rivals/gloo_bench.py
hccl_warnings(bench_method)
set_target_properties(bench_method PROPERTIES C_VISIBILITY_PRESET default)
add_executable(hccl_bench rivals/hccl_bench.cc ${method})
add_executable(limit_bench rivals/limit_bench.c ${method})
add_executable(machine_bench rivals/machine_bench.c rivals/probe.c)
foreach(program hccl_bench limit_bench machine_bench)
  hccl_warnings(${program})
  target_link_libraries(${program} PRIVATE Threads::Threads)
endforeach()
target_include_directories(hccl_bench PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(hccl_bench PRIVATE hccl::hccl)
add_custom_target(rivals_bench DEPENDS bench_method hccl_bench limit_bench machine_bench)
if(TARGET hccl_pmix)   # hccl_bench joins through mpirun
  add_dependencies(rivals_bench hccl_pmix)
endif()
