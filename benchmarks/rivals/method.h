/* The method by which every library here is timed: one loop, one check, one statistic, in C, linked
 * into each program (Gloo's calls it from Python). A program gives a bench_library and calls
 * bench_main.
 *
 * For each operation and size, each rank, many times:
 *   1. rewrites its buffer (outside of the timed part) with values that depend on the iteration;
 *   2. from 64 KiB on, meets the other ranks at a barrier in shared memory that belongs to no
 * library, so that nobody's time holds somebody else's rewriting;
 *   3. reads the clock, runs the operation, reads the clock; the clock's own cost is taken off;
 * from 64 KiB on, meets the others again, for the same reason: who is done first would rewrite its
 * buffer while others that share its processor are not done;
 *   4. checks a few elements of the result. All elements are checked before and after the loop.
 * Before and after all that, the ranks probe the state of the machine (probe.h). While somebody
 * else's work holds up a core they wait, for eight times --seconds in all; a size during which the
 * state changed is timed again, at most three times in all. An iteration's time is that of its
 * slowest rank; a size's figure is the mean of the middle half of its iterations ("us"; the median
 * and others are printed too). The root of broadcasts moves on by one each iteration, so that no
 * rank can run ahead.
 *
 * Processes: one a rank, on one host. They share a page file that the driver makes (--page), which
 * carries times, barriers and a little mail (for libraries that need an address to meet at). */
#ifndef BENCHMARKS_RIVALS_METHOD_H_
#define BENCHMARKS_RIVALS_METHOD_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { BENCH_MAX_RANKS = 16, BENCH_TEXT = 128 };

/** Allgather, reduce-scatter and alltoall are out of place; the other two are in place. */
enum bench_op {
  BENCH_ALLREDUCE,
  BENCH_BROADCAST,
  BENCH_ALLGATHER,
  BENCH_REDUCE_SCATTER,
  BENCH_ALLTOALL,
  BENCH_OPS
};

enum bench_type { BENCH_FP32, BENCH_FP16, BENCH_BF16, BENCH_TYPES };

/** What the command line said; see bench_main. Texts are owned by it and live as long as the
 * program. */
struct bench_options {
  const char* page;   /**< the file that the ranks share */
  const char* memory; /**< --memory: what the library's allocate should give, "private" or "heap" */
  size_t chunk;       /**< --chunk in bytes, for programs that have such a setting; 0: not given */
  size_t largest;     /**< bytes of the largest size asked for */
  double seconds;     /**< how long one size may be timed, about */
  unsigned limit;     /**< seconds after which the process ends itself */
  int pin;            /**< each rank on a processor of its own (processor = order of arrival) */
};

/** One library. All functions return 0 on success and say on standard error what failed. */
struct bench_library {
  /** Joins; sets *rank and *size and writes the version, at most BENCH_TEXT bytes with its end. */
  int (*open)(const struct bench_options* options, int* rank, int* size, char* version);
  /** Memory for one buffer; NULL: private pages, filled once. */
  void* (*allocate)(size_t bytes);
  /** Optional: called on all ranks before a size is timed. */
  int (*prepare)(int op, int type, void* send, void* recv, size_t count);
  /** Runs one operation and returns when this rank's part is done. count: elements of the larger
   * buffer, of which allgather, reduce-scatter and alltoall have one block a rank. send == recv
   * when in place. */
  int (*run)(int op, int type, void* send, void* recv, size_t count, int root);
  void (*close)(void);
};

/** --page FILE [--ops LIST] [--sizes LIST] [--type fp32|fp16|bf16] [--memory M] [--chunk BYTES]
 * [--seconds S] [--limit S] [--core NS] [--pin]. --core: the least that probe_core_ns ever gave
 * here. Rank 0 prints lines "BENCH {json}": the library, then one a size. Returns what main
 * returns: 0, 1 a failure, 2 bad arguments, 3 wrong results. */
int bench_main(int argc, char** argv, const struct bench_library* library);

/** Rank 0 leaves bytes (at most 3072) for the others; the others wait for them. For use in open. */
void bench_post(const void* bytes, size_t size);
void bench_fetch(void* bytes, size_t size);

/** An environment variable that must hold a whole number; ends the program otherwise. */
int bench_environment(const char* name);

size_t bench_type_size(int type);

#ifdef __cplusplus
}
#endif
#endif /* BENCHMARKS_RIVALS_METHOD_H_ */
