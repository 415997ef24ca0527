find_package(nlohmann_json REQUIRED)
hccl_test(split_test SOURCES split_test.cc LIBS hccl_split)
hccl_test(planner_test SOURCES planner_test.cc LIBS hccl_split)
hccl_test(cost_model_test SOURCES cost_model_test.cc LIBS hccl_split)
hccl_test(priority_test SOURCES priority_test.cc LIBS hccl_split)
hccl_test(tuner_test SOURCES tuner_test.cc LIBS hccl_split)
hccl_test(trace_test SOURCES trace_test.cc LIBS hccl_split nlohmann_json::nlohmann_json)
# Needs core's world of ranks, which is made in another file.
hccl_test(agreement_test SOURCES agreement_test.cc LIBS hccl_overlap hccl_test_world)
