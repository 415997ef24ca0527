# Transport plugins that the tests load, and the tests that load them.
set(test_plugins ${CMAKE_CURRENT_BINARY_DIR}/plugins)
function(hccl_test_plugin name source)
  add_library(test_plugin_${name} MODULE ${source})
  hccl_warnings(test_plugin_${name})
  target_include_directories(test_plugin_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  set_target_properties(test_plugin_${name} PROPERTIES
    OUTPUT_NAME hccl_${name} PREFIX "lib" SUFFIX ".so" C_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY ${test_plugins})
  target_compile_definitions(test_plugin_${name} PRIVATE ${ARGN})
endfunction()

hccl_test_plugin(loopback plugins/loopback.c)
hccl_test_plugin(version plugins/refused.c REFUSED_VERSION)
hccl_test_plugin(table plugins/refused.c REFUSED_TABLE)
hccl_test_plugin(name plugins/refused.c REFUSED_NAME)
hccl_test_plugin(holes plugins/refused.c REFUSED_HOLES)
hccl_test_plugin(nothing plugins/refused.c)

hccl_test(plugin_test SOURCES plugin_test.cc support/thread_ranks.cc LIBS hccl_test_ranks)
target_compile_definitions(plugin_test PRIVATE HCCL_TEST_PLUGIN_DIR="${test_plugins}")
add_dependencies(plugin_test test_plugin_loopback test_plugin_version test_plugin_table
  test_plugin_name test_plugin_holes test_plugin_nothing)

if(HCCL_WITH_PMIX AND HCCL_WITH_MPI)
  find_package(MPI REQUIRED COMPONENTS C)
  add_executable(pmix_test pmix_test.cc)
  hccl_warnings(pmix_test)
  target_include_directories(pmix_test PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(pmix_test PRIVATE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  target_link_libraries(pmix_test PRIVATE MPI::MPI_C ${CMAKE_DL_LIBS})
  add_dependencies(pmix_test hccl_pmix)
  foreach(beside alone mpi)
    add_test(NAME pmix_${beside}_test
      COMMAND ${MPIEXEC_EXECUTABLE} --oversubscribe --allow-run-as-root ${MPIEXEC_NUMPROC_FLAG} 4
              $<TARGET_FILE:pmix_test> $<TARGET_FILE:hccl_pmix> ${beside})
    set_tests_properties(pmix_${beside}_test PROPERTIES TIMEOUT 120 LABELS "unit" PROCESSORS 4)
  endforeach()
endif()
