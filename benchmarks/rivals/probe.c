#define _GNU_SOURCE
#include "probe.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

enum { kLineTurns = 100, kMostWindows = 200, kCoreTurns = 1000, kCoreWindows = 41 };

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return x < y ? -1 : x > y;
}

static double median(double* values, int count) {
  qsort(values, (size_t)count, sizeof *values, ascending);
  return values[count / 2];
}

static void await(const int* word, int wanted) {
  for (unsigned turn = 0; __atomic_load_n(word, __ATOMIC_ACQUIRE) != wanted; ++turn)
    if (turn > 1000000) sched_yield(); /* the partner may have lost its processor */
}

double probe_line_ns(struct probe_line* line, int side, int windows) {
  double times[kMostWindows];
  if (windows > kMostWindows) windows = kMostWindows;
  int i = __atomic_load_n(side == 0 ? &line->ping : &line->pong, __ATOMIC_RELAXED);
  for (int w = 0; w < windows; ++w) {
    const double start = now_ns();
    for (int turn = 0; turn < kLineTurns; ++turn) {
      ++i;
      if (side == 0) {
        __atomic_store_n(&line->ping, i, __ATOMIC_RELEASE);
        await(&line->pong, i);
      } else {
        await(&line->ping, i);
        __atomic_store_n(&line->pong, i, __ATOMIC_RELEASE);
      }
    }
    times[w] = (now_ns() - start) / kLineTurns / 2;
  }
  return median(times, windows);
}

double probe_core_ns(void) {
  double times[kCoreWindows];
  for (int w = 0; w < kCoreWindows; ++w) {
    unsigned long a = 1, b = 2, c = 3, d = 4;
    const double start = now_ns();
    for (int turn = 0; turn < kCoreTurns; ++turn) {
      ++a, ++b, ++c, ++d;
      __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d)); /* the compiler adds nothing up */
      ++a, ++b, ++c, ++d;
      __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d));
    }
    times[w] = now_ns() - start;
  }
  return median(times, kCoreWindows);
}
