# The public interface: codes, texts, groups, fusion; headers and what is installed; the walls
# between the rooms.
hccl_test(api_test SOURCES api_test.cc LIBS hccl)
hccl_test(fusion_test SOURCES fusion_test.cc LIBS hccl)
hccl_test(fusion_auto_test SOURCES fusion_auto_test.cc LIBS hccl)
hccl_test(hcom_test SOURCES hcom_test.cc LIBS hccl)
# These tests make communicators fail on purpose; nobody needs to read about it.
set_tests_properties(api_test fusion_test fusion_auto_test hcom_test PROPERTIES
  ENVIRONMENT "HCCL_LOG=off;HCCL_FLIGHT_RECORDER_DIR=off" TIMEOUT 120)

# Every public header, alone, in every language it promises.
set(strict -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I${PROJECT_SOURCE_DIR})
foreach(header hccl/hccl hccl/hccl_comm hccl/hccl_fusion hccl/hccl_types hccl/hcom hccl/acl/acl)
  set(file ${PROJECT_SOURCE_DIR}/${header}.h)
  string(REPLACE "/" "_" name ${header})
  add_test(NAME header_${name}_c99 COMMAND ${CMAKE_C_COMPILER} -std=c99 ${strict} -x c ${file})
  foreach(standard 11 17)
    add_test(NAME header_${name}_cxx${standard}
      COMMAND ${CMAKE_CXX_COMPILER} -std=c++${standard} ${strict} -x c++ ${file})
  endforeach()
  set_tests_properties(header_${name}_c99 header_${name}_cxx11 header_${name}_cxx17
    PROPERTIES LABELS "unit;headers" TIMEOUT 60)
endforeach()

find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME layers_test
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/layers_test.py ${PROJECT_SOURCE_DIR})
set_tests_properties(layers_test PROPERTIES LABELS "unit" TIMEOUT 60)
