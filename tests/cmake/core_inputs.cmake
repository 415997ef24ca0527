hccl_test(config_test SOURCES config_test.cc LIBS hccl_base)
hccl_test(rank_table_test SOURCES rank_table_test.cc LIBS hccl_join)
hccl_test(launcher_test SOURCES launcher_test.cc LIBS hccl_join)
hccl_test(interfaces_test SOURCES interfaces_test.cc LIBS hccl_join)
