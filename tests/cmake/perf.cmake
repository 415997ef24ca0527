# hccl_perf fails when a result is wrong: every operation once, with threads, and once under mpirun.
if(TARGET hccl_perf)
  foreach(op allreduce broadcast reduce_scatter allgather reduce scatter alltoall barrier sendrecv)
    add_test(NAME hccl_perf_${op}_test
      COMMAND hccl_perf --threads 3 --op ${op} --max 256K --iterations 5 --warmup 1)
    set_tests_properties(hccl_perf_${op}_test PROPERTIES TIMEOUT 120)
  endforeach()
  add_test(NAME hccl_perf_files_test
    COMMAND sh -c "$<TARGET_FILE:hccl_perf> --threads 2 --max 4K --out-of-place -d bfp16 -n 3 --json perf.json --csv perf.csv \
      && python3 -c \"import json; d = json.load(open('perf.json')); assert d['ranks'] == 2 and all(r['wrong'] == 0 for r in d['rows']), d\" \
      && test $(wc -l < perf.csv) -eq 6 && ! $<TARGET_FILE:hccl_perf> --threads 2 --max 1K --json /nonexistent/x.json \
      && ! $<TARGET_FILE:hccl_perf> --op nothing && ! $<TARGET_FILE:hccl_perf> --max 12Q")
  if(HCCL_WITH_MPI)
    add_test(NAME hccl_perf_mpirun_test
      COMMAND mpirun --oversubscribe --allow-run-as-root -np 4 $<TARGET_FILE:hccl_perf> --max 1M --iterations 5)
    set_tests_properties(hccl_perf_mpirun_test PROPERTIES TIMEOUT 120)
  endif()
endif()
