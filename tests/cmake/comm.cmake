# Communicators by HCCL's own interface, and the layout of its types.
hccl_test(comm_test
  SOURCES comm_test.cc comm_config_test.cc comm_wrong_test.cc comm_memory_test.cc comm_layout_test.cc
  LIBS hccl)
hccl_test(handles_test SOURCES handles_test.cc LIBS hccl_base)
# These tests make communicators fail on purpose; nobody needs to read about it.
set_tests_properties(comm_test PROPERTIES
  ENVIRONMENT "HCCL_LOG=off;HCCL_FLIGHT_RECORDER_DIR=off" TIMEOUT 120)
hccl_test(comm_environment_test SOURCES comm_environment_test.cc LIBS hccl)
set_tests_properties(comm_environment_test PROPERTIES
  ENVIRONMENT "HCCL_LOG=off;HCCL_DETERMINISTIC=true;HCCL_BUFFSIZE=7" TIMEOUT 60)
