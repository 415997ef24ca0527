#define _GNU_SOURCE  // NOLINT(bugprone-reserved-identifier): the C library asks for it
#include "method.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "page.h"
#include "values.h"

enum {
  kBatches = 5,
  kMostIterations = 100000, /* in one batch */
  kLineWindows = 15,
  kLineTurns = 100,
  kAttempts = 3 /* most times that a size is timed while the machine changes */
};

static const struct bench_library* library;

/* ---- timing ---- */

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return x < y ? -1 : x > y;
}

static double median(double* values, int count) {
  qsort(values, (size_t)count, sizeof *values, ascending);
  return values[count / 2];
}

/* Returns the nanoseconds in which a cache line moves from this rank's processor to the processor
 * of the other side. */
static double line_ns(int side) {
  double times[kLineWindows];
  int i = __atomic_load_n(side == 0 ? &page->ping : &page->pong, __ATOMIC_RELAXED);
  for (int w = 0; w < kLineWindows; ++w) {
    const double start = now_us();
    for (int turn = 0; turn < kLineTurns; ++turn, ++i) {
      if (side == 0) __atomic_store_n(&page->ping, i + 1, __ATOMIC_RELEASE);
      await(side == 0 ? &page->pong : &page->ping, i);
      if (side != 0) __atomic_store_n(&page->pong, i + 1, __ATOMIC_RELEASE);
    }
    times[w] = (now_us() - start) * 1e3 / kLineTurns / 2;
  }
  return median(times, kLineWindows);
}

/* Times a cache line between rank 0 and the first rank on another processor; returns 0 if there is
 * no such rank. Collective; the result is valid on rank 0. */
static double probe(void) {
  double found = 0;
  page->processors[rank] = sched_getcpu();
  barrier();
  int other = 1;
  while (other < ranks && page->processors[other] == page->processors[0]) ++other;
  if (other < ranks && (rank == 0 || rank == other)) found = line_ns(rank != 0);
  barrier();
  return found;
}

static int moved(double a, double b) {
  const double factor = 1.7; /* the same as FACTOR in runner.py */
  return a > factor * b || b > factor * a;
}

/* Collective: returns rank 0's `yes` on all ranks. */
static int agree(int yes) {
  if (rank == 0) page->again = yes;
  barrier();
  const int agreed = page->again;
  barrier();
  return agreed;
}

struct task {
  int op, type;
  void *send, *recv;
  size_t count, bytes, result; /* elements and bytes of the larger buffer; elements of the result */
  unsigned round;
  long wrong;
};

static int root_of(const struct task* t) { return (int)(t->round % (unsigned)ranks); }

static void rewrite(struct task* t) {
  const size_t elements = t->op == BENCH_ALLGATHER ? t->count / (size_t)ranks : t->count;
  values_write(t->type, t->send, elements * bench_type_size(t->type), ++t->round);
}

static int has_result(const struct task* t) {
  return t->op != BENCH_BARRIER && (t->op != BENCH_REDUCE || rank == root_of(t));
}

/* Returns the number of wrong elements among the few that each iteration checks. */
static long look(const struct task* t) {
  return has_result(t) ? values_check_spots(t->type, t->recv, t->round) : 0;
}

static void iterate(struct task* t) {
  rewrite(t);
  if (library->run(t->op, t->type, t->send, t->recv, t->count, root_of(t)))
    fail("the operation failed");
  t->wrong += look(t);
}

static void iterate_and_check_all(struct task* t) {
  iterate(t);
  if (has_result(t))
    t->wrong +=
        values_check_all(t->op, t->type, t->recv, t->result, t->count, t->round, root_of(t));
}

/* Returns the number of iterations that fill the time of a batch. Rank 0 decides the number, so
 * that all ranks have the same. */
static long agree_on_iterations(struct task* t, long tries, double seconds) {
  barrier();
  const double start = now_us();
  for (long i = 0; i < tries; ++i) iterate(t);
  if (rank == 0) {
    const double fit = seconds * 1e6 * (double)tries / (now_us() - start);
    page->iterations = fit < 1 ? 1 : fit > kMostIterations ? kMostIterations : (long)fit;
  }
  barrier();
  return page->iterations;
}

/* Returns the microseconds of an iteration. The loop has no barrier, so the time includes the work
 * that an operation leaves to its caller's next write, such as fetching lines that another rank's
 * processor holds. */
static double loop_us(struct task* t, long iterations) {
  double times[kBatches];
  barrier();
  double start = now_us();
  for (int batch = 0; batch < kBatches; ++batch) {
    for (long i = 0; i < iterations; ++i) iterate(t);
    const double end = now_us();
    times[batch] = (end - start) / (double)iterations;
    start = end;
  }
  barrier();
  return median(times, kBatches);
}

/* Returns the microseconds of an iteration without the operation, while all ranks rewrite. A batch
 * ends when all ranks are done, because ranks that share a processor rewrite one after another. */
static double rewrite_us(struct task* t, long iterations) {
  double times[kBatches];
  volatile long unused = 0;
  for (int batch = 0; batch < kBatches; ++batch) {
    barrier();
    const double start = now_us();
    for (long i = 0; i < iterations; ++i) {
      rewrite(t);
      unused += look(t);
    }
    barrier();
    times[batch] = (now_us() - start) / (double)iterations;
  }
  return median(times, kBatches);
}

static void print_figures(const struct task* t, const char* op, const char* type, long iterations,
                          double before, double after) {
  double us = 0.001, rewriting = 0;
  long wrong = 0;
  for (int r = 0; r < ranks; ++r) {
    const double own = page->loop_us[r] - page->rewrite_us[r];
    if (own > us) us = own;
    if (page->rewrite_us[r] > rewriting) rewriting = page->rewrite_us[r];
    wrong += page->wrong[r];
  }
  printf("BENCH {\"op\": \"%s\", \"type\": \"%s\", \"bytes\": %zu, \"ranks\": %d, ", op, type,
         t->bytes, ranks);
  printf("\"iterations\": %ld, \"us\": %.4f, \"rewrite_us\": %.4f, ", iterations * kBatches, us,
         rewriting);
  if (before > 0) printf("\"line_ns\": [%.1f, %.1f], ", before, after);
  printf("\"wrong\": %ld}\n", wrong);
  fflush(stdout);
}

static long time_size(struct task* t, const char* op, const char* type, double seconds) {
  if (t->op != BENCH_BARRIER) values_choose_spots(t->op, t->type, t->result, t->count);
  if (library->prepare && library->prepare(t->op, t->type, t->send, t->recv, t->count))
    fail("preparing failed");
  iterate_and_check_all(t);
  long iterations;
  double before, after;
  for (int attempt = 1;; ++attempt) {
    before = probe();
    const double batch = seconds / kBatches;
    iterations = agree_on_iterations(t, 1, batch);
    iterations = agree_on_iterations(t, iterations, batch); /* the caches are warm now */
    page->loop_us[rank] = loop_us(t, iterations);
    page->rewrite_us[rank] = rewrite_us(t, iterations);
    after = probe();
    if (!agree(attempt < kAttempts && moved(before, after))) break;
  }
  iterate_and_check_all(t);
  page->wrong[rank] = t->wrong;
  barrier();
  if (rank == 0) print_figures(t, op, type, iterations, before, after);
  barrier();
  return t->wrong;
}

/* ---- the command line ---- */

static const char* const kOpNames[] = {"allreduce", "broadcast", "allgather", "reduce_scatter",
                                       "alltoall",  "reduce",    "barrier"};
static const char* const kTypeNames[] = {"fp32", "fp16", "bf16"};

static int find(const char* const* names, int count, const char* name) {
  for (int i = 0; i < count; ++i)
    if (strcmp(names[i], name) == 0) return i;
  fprintf(stderr, "bench: '%s' is not known\n", name);
  exit(2);
}

static size_t parse_size(const char* text) {
  char* end = NULL;
  errno = 0;
  unsigned long long number = strtoull(text, &end, 10);
  if (end != text && *end == 'K')
    number <<= 10, ++end;
  else if (end != text && *end == 'M')
    number <<= 20, ++end;
  if (end == text || *end != '\0' || errno != 0 || number == 0 || number > 1ull << 32) {
    fprintf(stderr, "bench: '%s' is not a size\n", text);
    exit(2);
  }
  return (size_t)number;
}

static double parse_seconds(const char* text) {
  char* end = NULL;
  const double number = strtod(text, &end);
  if (end == text || *end != '\0' || !(number > 0 && number < 1e5)) {
    fprintf(stderr, "bench: '%s' is not a time in seconds\n", text);
    exit(2);
  }
  return number;
}

static void* allocate(size_t bytes) {
  void* memory = NULL;
  if (library->allocate) {
    memory = library->allocate(bytes);
    if (memory == NULL) fail("no memory of the kind asked for");
  } else if (posix_memalign(&memory, 4096, bytes) != 0) {
    fail("no memory");
  }
  memset(memory, 0, bytes);
  return memory;
}

struct plan {
  char *ops, *sizes;
  const char* type_name;
};

/* Returns false, and prints the reason, if the arguments are invalid. */
static int parse(int argc, char** argv, struct bench_options* o, struct plan* plan) {
  for (int i = 1; i < argc; ++i) {
    const char* name = argv[i];
    if (strcmp(name, "--pin") == 0) {
      o->pin = 1;
      continue;
    }
    char* text = i + 1 < argc ? argv[++i] : NULL;
    if (text == NULL) name = "";
    if (strcmp(name, "--page") == 0)
      o->page = text;
    else if (strcmp(name, "--ops") == 0)
      plan->ops = text;
    else if (strcmp(name, "--sizes") == 0)
      plan->sizes = text;
    else if (strcmp(name, "--type") == 0)
      plan->type_name = text;
    else if (strcmp(name, "--memory") == 0)
      o->memory = text;
    else if (strcmp(name, "--seconds") == 0)
      o->seconds = parse_seconds(text);
    else if (strcmp(name, "--limit") == 0)
      o->limit = (unsigned)parse_seconds(text);
    else {
      fprintf(stderr, "bench: do not understand '%s'\n", argv[i]);
      return 0;
    }
  }
  if (o->page != NULL && plan->ops != NULL && plan->sizes != NULL) return 1;
  fprintf(stderr, "bench: --page, --ops and --sizes are needed\n");
  return 0;
}

static void join(struct bench_options* o, int type) {
  char version[BENCH_TEXT] = "";
  cpu_set_t processors;
  /* A rank never outlives its launcher or its time. */
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(o->limit);
  open_page(o->page);
  if (sched_getaffinity(0, sizeof processors, &processors) != 0) fail("sched_getaffinity");
  if (o->pin) pin();
  if (library->open(o, &rank, &ranks, version) != 0) fail("joining failed");
  if (ranks < 1 || ranks > BENCH_MAX_RANKS) fail("too many ranks");
  crowded = ranks > CPU_COUNT(&processors);
  values_begin(type, rank, ranks);
  for (char* c = version; *c; ++c)
    if (*c < ' ' || *c == '"' || *c == '\\') *c = ' ';
  if (rank != 0) return;
  printf("BENCH {\"version\": \"%s\", \"ranks\": %d, \"memory\": \"%s\"}\n", version, ranks,
         o->memory);
  fflush(stdout);
}

int bench_main(int argc, char** argv, const struct bench_library* given) {
  struct bench_options o = {NULL, "private", 0, 0.3, 60, 0};
  struct plan plan = {NULL, NULL, "fp32"};
  if (!parse(argc, argv, &o, &plan)) return 2;
  const int type = find(kTypeNames, BENCH_TYPES, plan.type_name);
  size_t sizes[64], kinds = 0;
  char* rest = NULL;
  for (char* s = strtok_r(plan.sizes, ",", &rest); s && kinds < 64;
       s = strtok_r(NULL, ",", &rest)) {
    sizes[kinds++] = parse_size(s);
    if (sizes[kinds - 1] > o.largest) o.largest = sizes[kinds - 1];
  }
  library = given;
  join(&o, type);
  void* send = allocate(o.largest < 4096 ? 4096 : o.largest);
  void* recv = NULL; /* allocated by the first operation that is out of place */
  long wrong = 0;
  for (char* op = strtok_r(plan.ops, ",", &rest); op; op = strtok_r(NULL, ",", &rest)) {
    struct task t = {0};
    t.op = find(kOpNames, BENCH_OPS, op);
    t.type = type;
    t.send = t.recv = send;
    if (t.op == BENCH_BARRIER) {
      wrong += time_size(&t, op, plan.type_name, o.seconds);
      continue;
    }
    const int in_place = t.op == BENCH_ALLREDUCE || t.op == BENCH_BROADCAST;
    if (!in_place) {
      if (recv == NULL) recv = allocate(o.largest < 4096 ? 4096 : o.largest);
      t.recv = recv;
    }
    for (size_t k = 0; k < kinds; ++k) {
      t.bytes = sizes[k];
      t.count = t.bytes / bench_type_size(type);
      if (!in_place && t.op != BENCH_REDUCE) t.count -= t.count % (size_t)ranks;
      if (t.count == 0) continue;
      t.result = t.op == BENCH_REDUCE_SCATTER ? t.count / (size_t)ranks : t.count;
      t.wrong = 0;
      wrong += time_size(&t, op, plan.type_name, o.seconds);
    }
  }
  library->close();
  if (wrong > 0) fprintf(stderr, "bench: rank %d: WRONG RESULTS\n", rank);
  return wrong > 0 ? 3 : 0;
}
