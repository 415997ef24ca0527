/* The machine itself.  "probe": nanoseconds that a cache line needs from one processor to another
 * (probe.h).  "add": GB/s that all processors together read and write in c = a + b
 * on arrays that fit in no cache, with normal and with streaming stores; the better of the two is
 * the last word of the line. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "probe.h"

static int processors[CPU_SETSIZE], count;

static void find_processors(void) {
  cpu_set_t all;
  sched_getaffinity(0, sizeof all, &all);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &all)) processors[count++] = cpu;
}

static void pin(int which) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processors[which], &one);
  sched_setaffinity(0, sizeof one, &one);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return x < y ? -1 : x > y;
}

/* ---- probe ---- */

static struct probe_line line __attribute__((aligned(256)));
enum { kWindows = 160 };

static void* answer(void* unused) {
  pin(1);
  probe_line_ns(&line, 1, kWindows);
  return unused;
}

static int probe(void) {
  if (count < 2) {
    puts("0");
    return 0;
  }
  pthread_t partner;
  pin(0);
  if (pthread_create(&partner, NULL, answer, NULL) != 0) return 1;
  printf("%.0f\n", probe_line_ns(&line, 0, kWindows));
  pthread_join(partner, NULL);
  return 0;
}

/* ---- add ---- */

enum { kElements = 16 << 20, kRepeats = 7 }; /* of one processor's share of one array; 64 MiB */
static pthread_barrier_t meet;
static double times[2][kRepeats];

#if defined(__x86_64__)
__attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#endif
static void
add_normal(float* restrict c, const float* restrict a, const float* restrict b) {
  for (size_t i = 0; i < kElements; ++i) c[i] = a[i] + b[i];
}

static void add_streaming(float* restrict c, const float* restrict a, const float* restrict b) {
#if defined(__x86_64__)
  for (size_t i = 0; i < kElements; i += 4)
    _mm_stream_ps(c + i, _mm_add_ps(_mm_load_ps(a + i), _mm_load_ps(b + i)));
  _mm_sfence();
#else
  add_normal(c, a, b);
#endif
}

static void* add_share(void* which) {
  const int me = (int)(size_t)which;
  float* arrays[3];
  pin(me);
  for (int k = 0; k < 3; ++k) {
    void* memory = NULL;
    if (posix_memalign(&memory, 4096, kElements * sizeof(float)) != 0) exit(1);
    memset(memory, 0, kElements * sizeof(float));
    arrays[k] = memory;
  }
  for (int streaming = 0; streaming < 2; ++streaming)
    for (int i = 0; i < kRepeats; ++i) {
      pthread_barrier_wait(&meet);
      const double start = now();
      (streaming ? add_streaming : add_normal)(arrays[2], arrays[0], arrays[1]);
      pthread_barrier_wait(&meet);
      if (me == 0) times[streaming][i] = now() - start;
    }
  return NULL;
}

static int add(void) {
  pthread_t* threads = calloc((size_t)count, sizeof *threads);
  if (threads == NULL || pthread_barrier_init(&meet, NULL, (unsigned)count) != 0) return 1;
  for (int i = 0; i < count; ++i)
    if (pthread_create(&threads[i], NULL, add_share, (void*)(size_t)i) != 0) return 1;
  for (int i = 0; i < count; ++i) pthread_join(threads[i], NULL);
  double best = 0;
  for (int streaming = 0; streaming < 2; ++streaming) {
    qsort(times[streaming], kRepeats, sizeof(double), ascending);
    const double rate =
        3.0 * sizeof(float) * kElements * count / times[streaming][kRepeats / 2] / 1e9;
    printf("%s %.2f ", streaming ? "streaming" : "normal", rate);
    if (rate > best) best = rate;
  }
  printf("best %.2f\n", best);
  free(threads);
  return 0;
}

int main(int argc, char** argv) {
  find_processors();
  if (argc == 2 && strcmp(argv[1], "probe") == 0) return probe();
  if (argc == 2 && strcmp(argv[1], "add") == 0) return add();
  fprintf(stderr, "machine_bench: probe or add\n");
  return 2;
}
