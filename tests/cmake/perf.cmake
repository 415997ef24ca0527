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
  foreach(memory heap window)
    add_test(NAME hccl_perf_${memory}_test
      COMMAND sh -c "$<TARGET_FILE:hccl_perf> --threads 2 --min 64 --max 1M --factor 128 --memory ${memory} --cold -n 3 -w 1 --json perf_${memory}.json \
        && python3 -c \"import json; d = json.load(open('perf_${memory}.json')); \
assert d['memory'] == '${memory}' and d['cold'] and all(r['wrong'] == 0 and r['cpu'] >= 0 and 0 <= r['wait'] <= 1 for r in d['rows']), d\"")
    set_tests_properties(hccl_perf_${memory}_test PROPERTIES TIMEOUT 120)
  endforeach()
  # Each call alone, after a barrier; an algorithm by its name; names that are none.
  add_test(NAME hccl_perf_after_barrier_test
    COMMAND hccl_perf --threads 2 --op reduce --max 64K --iterations 5 --barrier)
  add_test(NAME hccl_perf_algo_test
    COMMAND sh -c "$<TARGET_FILE:hccl_perf> --threads 2 --max 4K -n 3 --algo level1:ring --json perf_algo.json \
      && python3 -c \"import json; d = json.load(open('perf_algo.json')); \
assert not d['barrier'] and all(r['wrong'] == 0 and r['algorithm'] == 'level1:ring' for r in d['rows']), d\" \
      && ! $<TARGET_FILE:hccl_perf> --threads 2 --max 4K -n 3 --algo level1:nothing")
  add_test(NAME hccl_perf_memory_test COMMAND sh -c "! $<TARGET_FILE:hccl_perf> --threads 2 --memory nowhere")
  if(HCCL_WITH_MPI)
    add_test(NAME hccl_perf_mpirun_test
      COMMAND mpirun --oversubscribe --allow-run-as-root -np 4 $<TARGET_FILE:hccl_perf> --max 1M --iterations 5)
    # Each two ranks on a core of their own: messages go in another order of ranks, and private memory in turns.
    foreach(transport tcp shm)
      add_test(NAME hccl_perf_mpirun_${transport}_pinned_test
        COMMAND mpirun --oversubscribe --allow-run-as-root --bind-to none -np 5 sh -c
          "exec taskset -c $((OMPI_COMM_WORLD_RANK / 2 % $(nproc))) $<TARGET_FILE:hccl_perf> --max 4M --iterations 5")
      set_tests_properties(hccl_perf_mpirun_${transport}_pinned_test PROPERTIES TIMEOUT 120 ENVIRONMENT HCCL_TRANSPORT=${transport})
    endforeach()
    set_tests_properties(hccl_perf_mpirun_test PROPERTIES TIMEOUT 120)
  endif()
endif()
