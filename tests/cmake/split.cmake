find_package(nlohmann_json REQUIRED)
hccl_test(split_test SOURCES split_test.cc LIBS hccl_split)
hccl_test(planner_test SOURCES planner_test.cc LIBS hccl_split)
hccl_test(trace_test SOURCES trace_test.cc LIBS hccl_split nlohmann_json::nlohmann_json)
