hccl_test(two_level_test SOURCES two_level_test.cc support/thread_ranks.cc LIBS hccl_test_ranks hccl_exec)
