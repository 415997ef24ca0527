add_executable(planner_bench planner_bench.cc)
hccl_warnings(planner_bench)
target_link_libraries(planner_bench PRIVATE hccl_split benchmark::benchmark benchmark::benchmark_main)
