# The comparison with other libraries: its reports on canned data, its loop on libraries that cheat. Times
# nothing.
if(TARGET rivals_bench)
  add_test(NAME rivals_report_test
    COMMAND /usr/bin/python3 -B ${CMAKE_CURRENT_SOURCE_DIR}/rivals_report_test.py)
  add_test(NAME rivals_method_test
    COMMAND /usr/bin/python3 -B ${CMAKE_CURRENT_SOURCE_DIR}/rivals_method_test.py)
  set_tests_properties(rivals_report_test rivals_method_test PROPERTIES TIMEOUT 120
    ENVIRONMENT "RIVALS_BUILD=${PROJECT_BINARY_DIR}")
endif()
