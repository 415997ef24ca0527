# The public interface: codes, texts, groups, fusion; what is installed; who includes whom.
hccl_test(api_test SOURCES api_test.cc LIBS hccl)
hccl_test(fusion_test SOURCES fusion_test.cc LIBS hccl)
hccl_test(hcom_test SOURCES hcom_test.cc LIBS hccl)
# These tests make communicators fail on purpose; nobody needs to read about it.
set_tests_properties(api_test fusion_test hcom_test PROPERTIES
  ENVIRONMENT "HCCL_LOG=off;HCCL_FLIGHT_RECORDER_DIR=off" TIMEOUT 120)
