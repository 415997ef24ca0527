# The plugin for files: what is refused, and that it keeps its Protobuf to itself.
find_package(Protobuf REQUIRED)
foreach(refused nothing build)
  set(module test_files_${refused})
  add_library(${module} MODULE files/refused.c)
  hccl_warnings(${module})
  set_target_properties(${module} PROPERTIES OUTPUT_NAME hccl_files PREFIX "lib" SUFFIX ".so"
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/files/${refused})
endforeach()
target_compile_definitions(test_files_build PRIVATE REFUSED_BUILD)

hccl_test(files_load_test SOURCES files/load_test.cc LIBS hccl_files_loader)
target_compile_definitions(files_load_test PRIVATE
  HCCL_TEST_FILES_NOTHING="${CMAKE_CURRENT_BINARY_DIR}/files/nothing"
  HCCL_TEST_FILES_BUILD="${CMAKE_CURRENT_BINARY_DIR}/files/build")
add_dependencies(files_load_test test_files_nothing test_files_build)

add_test(NAME library_needs_no_protobuf_test
  COMMAND sh -c "! { ldd $<TARGET_FILE:hccl>; nm -DC $<TARGET_FILE:hccl>; } | grep -i protobuf")
set_tests_properties(library_needs_no_protobuf_test PROPERTIES LABELS "unit" TIMEOUT 60)

# Sanitizers do not know libraries that bind their own symbols first.
if(NOT HCCL_SANITIZE)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/files/foreign_protobuf.c)
  add_custom_command(OUTPUT ${source}
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/files/foreign_protobuf.sh $<TARGET_FILE:protobuf::libprotobuf>
            ${source}
    DEPENDS files/foreign_protobuf.sh)
  add_library(foreign_protobuf MODULE ${source})

  add_executable(files_isolation_test files/isolation_test.cc)
  hccl_warnings(files_isolation_test)
  target_link_libraries(files_isolation_test PRIVATE hccl hccl_split GTest::gtest)
  add_dependencies(files_isolation_test foreign_protobuf)
  add_test(NAME files_isolation_later_test
    COMMAND files_isolation_test $<TARGET_FILE:foreign_protobuf>)
  add_test(NAME files_isolation_preloaded_test COMMAND files_isolation_test)
  set_tests_properties(files_isolation_later_test files_isolation_preloaded_test PROPERTIES
    LABELS "unit" TIMEOUT 60)
  set_property(TEST files_isolation_preloaded_test
    PROPERTY ENVIRONMENT LD_PRELOAD=$<TARGET_FILE:foreign_protobuf>)
endif()
