# Communicators: the same bodies with threads as ranks, and with processes under mpirun.
add_library(hccl_test_world OBJECT support/world.cc)
hccl_warnings(hccl_test_world)
target_link_libraries(hccl_test_world PUBLIC hccl_core hccl_kernels GTest::gtest)
hccl_test(strict_test SOURCES strict_test.cc LIBS hccl_test_world)
hccl_test(queue_test SOURCES queue_test.cc LIBS hccl_base)
if(NOT HCCL_SANITIZE)  # it replaces malloc, as sanitizers do
  hccl_test(staging_test SOURCES staging_test.cc LIBS hccl_test_world)
endif()
hccl_test(collectives_test SOURCES collectives_test.cc LIBS hccl_test_world TIMEOUT 1800)
foreach(plugin hccl_ofi hccl_mpi)
  if(TARGET ${plugin})
    add_dependencies(collectives_test ${plugin})
  endif()
endforeach()

if(HCCL_WITH_MPI)
  find_package(MPI REQUIRED COMPONENTS CXX)
  add_executable(collectives_mpi_test collectives_test.cc support/world.cc)
  hccl_warnings(collectives_mpi_test)
  target_compile_definitions(collectives_mpi_test PRIVATE HCCL_TEST_MPI OMPI_SKIP_MPICXX)
  target_link_libraries(collectives_mpi_test PRIVATE hccl_core hccl_kernels MPI::MPI_CXX
                                                     GTest::gtest GTest::gtest_main)
  foreach(ranks 2 4)
    add_test(NAME collectives_test_mpirun_${ranks}
             COMMAND mpirun --oversubscribe --allow-run-as-root -np ${ranks} $<TARGET_FILE:collectives_mpi_test>)
    set_tests_properties(collectives_test_mpirun_${ranks} PROPERTIES TIMEOUT 900 LABELS "mpi" PROCESSORS 2)
  endforeach()
endif()
