hccl_test(heap_test SOURCES heap_test.cc LIBS hccl_memory)
