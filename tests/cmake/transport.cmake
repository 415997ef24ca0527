add_library(hccl_test_ranks STATIC support/ranks.cc)
hccl_warnings(hccl_test_ranks)
target_link_libraries(hccl_test_ranks PUBLIC hccl_transport)
target_compile_definitions(hccl_test_ranks PRIVATE
  HCCL_TEST_PLUGIN_PATH="${PROJECT_BINARY_DIR}/lib")
# Plugins are loaded at run time, so nothing else would build them before a test runs.
foreach(plugin hccl_ofi hccl_mpi)
  if(TARGET ${plugin})
    add_dependencies(hccl_test_ranks ${plugin})
  endif()
endforeach()

hccl_test(transport_contract_test
  SOURCES transport_contract_test.cc support/thread_ranks.cc
  LIBS hccl_test_ranks TIMEOUT 1800)
hccl_test(tcp_test
  SOURCES tcp_test.cc support/thread_ranks.cc
  LIBS hccl_test_ranks)

if(HCCL_WITH_MPI)
  find_package(MPI REQUIRED COMPONENTS CXX)
  # The same cases with processes as ranks.
  add_executable(transport_contract_mpi_test transport_contract_test.cc support/mpi_ranks.cc)
  hccl_warnings(transport_contract_mpi_test)
  target_link_libraries(transport_contract_mpi_test
    PRIVATE hccl_test_ranks MPI::MPI_CXX GTest::gtest)
  foreach(ranks 2 4)
    add_test(NAME transport_contract_mpi_${ranks}_test
      COMMAND ${MPIEXEC_EXECUTABLE} --oversubscribe --allow-run-as-root ${MPIEXEC_NUMPROC_FLAG} ${ranks}
              $<TARGET_FILE:transport_contract_mpi_test>)
    set_tests_properties(transport_contract_mpi_${ranks}_test PROPERTIES
      TIMEOUT 600 LABELS "unit" PROCESSORS ${ranks} ENVIRONMENT "OMPI_MCA_btl=self,vader")
  endforeach()
endif()
