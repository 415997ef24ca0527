hccl_test(shm_ring_test SOURCES shm_ring_test.cc LIBS hccl_transport)
hccl_test(shm_test SOURCES shm_test.cc support/thread_ranks.cc LIBS hccl_test_ranks)
hccl_test(shm_process_test SOURCES shm_process_test.cc LIBS hccl_test_ranks)
hccl_test(routed_test SOURCES routed_test.cc support/thread_ranks.cc LIBS hccl_test_ranks)
