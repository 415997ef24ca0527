/* The method that times every library here: one loop, one check and one statistic, in C. Each
 * program links this code (the program for Gloo calls it from Python), provides a bench_library,
 * and calls bench_main.
 *
 * For each operation and size, each rank runs the following loop, in batches, without a barrier:
 *   1. rewrites its buffer with values that depend on the iteration;
 *   2. runs the operation;
 *   3. looks at a few elements of the result.
 * Then all ranks run the same loop without the operation. The result of a size ("us") is the median
 * batch of the first loop less the median batch of the second loop, on the slowest rank. So it
 * includes cache misses that the operation leaves to its caller's next write. All elements of the
 * result are checked before and after. The root of broadcasts and reductions is the next rank in
 * each iteration, so that no rank can run ahead.
 *
 * Before and after a size the ranks time how long a cache line takes from one processor to another
 * ("line_ns"), because virtual processors may move. If this time changed during a size, the size is
 * timed again, at most three times in all.
 *
 * Processes: one for each rank, on one host. The driver makes a file (--page) that the ranks share.
 * Through this file the ranks exchange times, barriers and short messages (for libraries whose
 * ranks need an address to meet). */
#ifndef BENCHMARKS_RIVALS_METHOD_H_
#define BENCHMARKS_RIVALS_METHOD_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { BENCH_MAX_RANKS = 16, BENCH_TEXT = 512 };

/** Allreduce and broadcast are in place; other operations with a result are out of place. */
enum bench_op {
  BENCH_ALLREDUCE,
  BENCH_BROADCAST,
  BENCH_ALLGATHER,
  BENCH_REDUCE_SCATTER,
  BENCH_ALLTOALL,
  BENCH_REDUCE,
  BENCH_BARRIER,
  BENCH_OPS
};

enum bench_type { BENCH_FP32, BENCH_FP16, BENCH_BF16, BENCH_TYPES };

/** The parsed command line; see bench_main. Its texts live as long as the program. */
struct bench_options {
  const char* page;   /**< the file that the ranks share */
  const char* memory; /**< --memory: the memory that the library's allocate returns, "private" or
                         "heap" */
  size_t largest;     /**< bytes of the largest requested size */
  double seconds;     /**< about the longest time for one size */
  unsigned limit;     /**< seconds after which the process ends itself */
  int pin;            /**< each rank on a processor of its own (processor = order of arrival) */
};

/** One library. All functions return 0 on success, and otherwise print the failure on standard
 * error. */
struct bench_library {
  /** Joins; sets *rank and *size and writes the version, at most BENCH_TEXT bytes with its end. */
  int (*open)(const struct bench_options* options, int* rank, int* size, char* version);
  /** Returns memory for one buffer. If the function is NULL, buffers are private pages, written
   * once. */
  void* (*allocate)(size_t bytes);
  /** Optional: called on all ranks before a size is timed. */
  int (*prepare)(int op, int type, void* send, void* recv, size_t count);
  /** Runs one operation and returns when this rank's part is done. count: elements of the larger
   * buffer, which has one block for each rank in allgather, reduce-scatter and alltoall. In place,
   * send == recv. */
  int (*run)(int op, int type, void* send, void* recv, size_t count, int root);
  void (*close)(void);
};

/** --page FILE --ops LIST --sizes LIST [--type fp32|fp16|bf16] [--memory M] [--seconds S] [--limit
 * S] [--pin]. Rank 0 prints lines "BENCH {json}": one for the library, then one for each size.
 * Returns what main returns: 0, 1 a failure, 2 bad arguments, 3 wrong results. */
int bench_main(int argc, char** argv, const struct bench_library* library);

/** Rank 0 stores bytes (at most 8192) for the other ranks, which wait for them. Only for use in
 * `open`. */
void bench_post(const void* bytes, size_t size);
void bench_fetch(void* bytes, size_t size);

/** Returns the value of an environment variable. Ends the program if it is not a whole number. */
int bench_environment(const char* name);

size_t bench_type_size(int type);

#ifdef __cplusplus
}
#endif
#endif /* BENCHMARKS_RIVALS_METHOD_H_ */
