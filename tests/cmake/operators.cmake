# Every operator: blocks of different lengths and batches over every transport, with threads and
# with processes; then all of them through the C interface, on streams and in groups.
hccl_test(exchange_test SOURCES exchange_test.cc LIBS hccl_test_world TIMEOUT 600)
foreach(plugin hccl_ofi hccl_mpi)
  if(TARGET ${plugin})
    add_dependencies(exchange_test ${plugin})
  endif()
endforeach()
if(HCCL_WITH_MPI)
  add_executable(exchange_mpi_test exchange_test.cc support/world.cc)
  hccl_warnings(exchange_mpi_test)
  target_compile_definitions(exchange_mpi_test PRIVATE HCCL_TEST_MPI OMPI_SKIP_MPICXX)
  target_link_libraries(exchange_mpi_test PRIVATE hccl_core hccl_kernels MPI::MPI_CXX GTest::gtest
                                                  GTest::gtest_main)
  foreach(ranks 2 4)
    add_test(NAME exchange_test_mpirun_${ranks}
             COMMAND mpirun --oversubscribe --allow-run-as-root -np ${ranks} $<TARGET_FILE:exchange_mpi_test>)
    set_tests_properties(exchange_test_mpirun_${ranks} PROPERTIES TIMEOUT 600 LABELS "mpi" PROCESSORS 2)
  endforeach()
endif()

hccl_test(operators_test SOURCES operators_test.cc LIBS hccl hccl_base TIMEOUT 300)
hccl_test(streams_test SOURCES streams_test.cc LIBS hccl TIMEOUT 120)
# These tests make communicators fail on purpose; nobody needs to read about it.
set_tests_properties(operators_test streams_test PROPERTIES
  ENVIRONMENT "HCCL_LOG=off;HCCL_FLIGHT_RECORDER_DIR=off")
