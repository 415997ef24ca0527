# What happens when ranks die, disagree or do not come, and what strangers can do about joining.
add_library(hccl_test_processes OBJECT support/processes.cc)
hccl_warnings(hccl_test_processes)
target_link_libraries(hccl_test_processes PUBLIC hccl_core hccl_kernels)
hccl_test(failure_test SOURCES failure_test.cc LIBS hccl_test_processes)
hccl_test(roster_test SOURCES roster_test.cc LIBS hccl_join)
hccl_test(mismatch_test SOURCES mismatch_test.cc LIBS hccl_test_world)
hccl_test(join_test SOURCES join_test.cc LIBS hccl_test_processes hccl_test_world)
