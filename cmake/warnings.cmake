# hccl_room(NAME sources...): a static library for one room, with the project's include root and warnings.
function(hccl_warnings target)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wpedantic>
    $<$<AND:$<BOOL:${HCCL_WERROR}>,$<COMPILE_LANGUAGE:C,CXX>>:-Werror>)
endfunction()

function(hccl_room name)
  add_library(${name} STATIC ${ARGN})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  hccl_warnings(${name})
endfunction()

# hccl_test(NAME sources... LIBS libs...): a GoogleTest program, one CTest entry per test program.
function(hccl_test name)
  cmake_parse_arguments(arg "" "TIMEOUT;LABEL" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  hccl_warnings(${name})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gtest GTest::gtest_main)
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "unit;${arg_LABEL}")
endfunction()
