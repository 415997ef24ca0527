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

# hccl_test_program(NAME sources...): a program of GoogleTest files.
function(hccl_test_program name)
  add_executable(${name} ${ARGN})
  hccl_warnings(${name})
  target_link_libraries(${name} PRIVATE hccl_test_main GTest::gtest)
  if(HCCL_SANITIZE)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON)
  endif()
  if(HCCL_SANITIZE MATCHES "undefined")
    # The library is built with these checks. In the tests' own code they would take a quarter of the compile time.
    target_compile_options(${name} PRIVATE -fno-sanitize=null,vptr,alignment)
  endif()
endfunction()

# hccl_test(NAME SOURCES... LIBS... [LABELS...] [NOT_ASAN cases] [NOT_TSAN cases] [ALONE]): GoogleTest files, and one
# CTest entry for their cases. If the room has a program $hccl_test_program, the files are linked into it; with ALONE,
# into a program of their own.
# LABELS: quick: takes a second or two; slow: takes half a minute or more; core: the default; no_asan: does not run
# under the address sanitizer; threads: the ranks are threads, so the thread sanitizer runs it; once: takes long, so if
# the address sanitizer is among the steps, only it runs the test, with all cases; serial: checks a time limit that the
# library promises, so the gate runs it last, alone.
# NOT_ASAN, NOT_TSAN: patterns of the cases that a sanitizer leaves out.
function(hccl_test name)
  cmake_parse_arguments(arg "ALONE" "TIMEOUT;NOT_ASAN;NOT_TSAN" "SOURCES;LIBS;LABELS" ${ARGN})
  set(program ${name})
  set(command ${name})
  set(unused FALSE)
  if(hccl_test_program AND NOT arg_ALONE)
    set(program ${hccl_test_program})
    list(JOIN arg_SOURCES "," files)
    set(command ${program} --file=${files})
    if(HCCL_SANITIZE MATCHES "thread" AND NOT "threads" IN_LIST arg_LABELS)
      set(unused TRUE)
    endif()
  endif()
  if(NOT unused)
    if(NOT TARGET ${program})
      hccl_test_program(${program})
    endif()
    target_sources(${program} PRIVATE ${arg_SOURCES})
    target_link_libraries(${program} PRIVATE ${arg_LIBS})
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 600)
  endif()
  set(filter "")
  if(HCCL_SANITIZE MATCHES "address" AND arg_NOT_ASAN)
    set(filter --gtest_filter=-${arg_NOT_ASAN})
  elseif(HCCL_SANITIZE MATCHES "thread" AND arg_NOT_TSAN)
    set(filter --gtest_filter=-${arg_NOT_TSAN})
  endif()
  if("threads" IN_LIST arg_LABELS)
    add_dependencies(thread_tests ${program})
  endif()
  if(NOT "quick" IN_LIST arg_LABELS AND NOT "slow" IN_LIST arg_LABELS)
    list(APPEND arg_LABELS core)
  endif()
  add_test(NAME ${name} COMMAND ${command} ${filter})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
  if("serial" IN_LIST arg_LABELS)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()
