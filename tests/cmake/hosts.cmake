# Network namespaces as hosts.
if(TARGET allreduce AND TARGET hccl_perf AND TARGET train_digits)
  add_test(NAME hosts_test COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/hosts_test.sh $<TARGET_FILE:allreduce>
    $<TARGET_FILE:hccl_perf> $<TARGET_FILE:train_digits>)
  set_tests_properties(hosts_test PROPERTIES TIMEOUT 120 LABELS "root" RUN_SERIAL ON)
endif()
