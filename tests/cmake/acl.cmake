# The acl runtime: every wrong argument, streams, events, memory, devices; its headers, each alone.
hccl_test(acl_test SOURCES acl_arguments_test.cc acl_memory_test.cc acl_test.cc LIBS hccl TIMEOUT 120)

foreach(header acl_base acl_base_rt acl_mdl acl_op acl_prof acl_rt error_codes/rt_error_codes)
  string(REPLACE "/" "_" name hccl/acl/${header})
  set(file ${PROJECT_SOURCE_DIR}/hccl/acl/${header}.h)
  set(flags -Wall -Wextra -Wpedantic -Werror -fsyntax-only)
  add_test(NAME header_${name}_c99 COMMAND ${CMAKE_C_COMPILER} -std=c99 ${flags} -x c ${file})
  foreach(standard 11 17)
    add_test(NAME header_${name}_cxx${standard}
      COMMAND ${CMAKE_CXX_COMPILER} -std=c++${standard} ${flags} -x c++ ${file})
  endforeach()
  set_tests_properties(header_${name}_c99 header_${name}_cxx11 header_${name}_cxx17
    PROPERTIES LABELS "unit;headers" TIMEOUT 60)
endforeach()
