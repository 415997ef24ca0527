hccl_test(waiter_test SOURCES waiter_test.cc LIBS hccl_base)
