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

# hccl_test(NAME SOURCES... LIBS... [LABELS...] [NOT_ASAN cases] [NOT_TSAN cases]): a GoogleTest program, one CTest entry
# per test program.
# LABELS: quick, a second or two; slow, half a minute and more; core, which is the default. no_asan: not under the address
# sanitizer. threads: the ranks are threads, so the thread sanitizer runs it. once: it takes long, so the release does not
# run it where the address sanitizer does. All its cases must run there.
# NOT_ASAN, NOT_TSAN: patterns of the cases that a sanitizer leaves out.
function(hccl_test name)
  cmake_parse_arguments(arg "" "TIMEOUT;NOT_ASAN;NOT_TSAN" "SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  hccl_warnings(${name})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gtest GTest::gtest_main)
  if(HCCL_SANITIZE MATCHES "undefined")
    # The library has these checks. In the test's own code they take a quarter of its compile time.
    target_compile_options(${name} PRIVATE -fno-sanitize=null,vptr,alignment)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  set(filter "")
  if(HCCL_SANITIZE MATCHES "address" AND arg_NOT_ASAN)
    set(filter --gtest_filter=-${arg_NOT_ASAN})
  elseif(HCCL_SANITIZE MATCHES "thread" AND arg_NOT_TSAN)
    set(filter --gtest_filter=-${arg_NOT_TSAN})
  endif()
  if("threads" IN_LIST arg_LABELS)
    add_dependencies(thread_tests ${name})
  endif()
  if(NOT "quick" IN_LIST arg_LABELS AND NOT "slow" IN_LIST arg_LABELS)
    list(APPEND arg_LABELS core)
  endif()
  add_test(NAME ${name} COMMAND ${name} ${filter})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
endfunction()
