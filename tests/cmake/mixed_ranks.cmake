# Ranks as threads: in one process, and in several.
if(HCCL_WITH_MPI)
  add_executable(mixed_ranks_test mixed_ranks_test.cc)
  hccl_warnings(mixed_ranks_test)
  target_compile_definitions(mixed_ranks_test PRIVATE OMPI_SKIP_MPICXX)
  target_link_libraries(mixed_ranks_test PRIVATE hccl MPI::MPI_CXX Threads::Threads)
  # processes x threads
  foreach(shape 1x16 1x7 2x3 3x2 4x4)
    string(REPLACE "x" ";" numbers ${shape})
    list(GET numbers 0 processes)
    list(GET numbers 1 threads)
    add_test(NAME mixed_ranks_mpirun_${shape}_test
      COMMAND mpirun --oversubscribe --allow-run-as-root -np ${processes} $<TARGET_FILE:mixed_ranks_test> ${threads})
    set_tests_properties(mixed_ranks_mpirun_${shape}_test PROPERTIES TIMEOUT 120 LABELS "mpi" PROCESSORS 2)
  endforeach()
endif()
