#define _GNU_SOURCE
#include "method.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "probe.h"
#include "values.h"

enum {
  kMaxIterations = 20000,
  kFewest = 5,
  kMail = 3072,
  kLineWindows = 15,
  kAttempts = 3, /* for one size, while the machine changes */
  kPatience = 8, /* times the time of a size, in all, while somebody else is on a core */
  kNapUs = 25000,
  kBarrierFrom = 64 << 10 /* bytes from which rewriting takes longer than a barrier */
};

/* What the ranks share; begins as zeros. Each word that is written while others wait has its own
 * lines. */
struct page {
  int tickets;
  char pad0[124];
  int arrived;
  char pad1[124];
  int generation;
  char pad2[124];
  int mail_ready;
  char pad3[124];
  struct probe_line line;
  int again;
  long iterations;
  double core_ns[BENCH_MAX_RANKS];
  int processors[BENCH_MAX_RANKS];
  long wrong[BENCH_MAX_RANKS];
  char mail[kMail];
  double times[BENCH_MAX_RANKS][kMaxIterations];
};

static struct page* page;
static int rank, ranks;
static int crowded; /* more ranks than processors: waiting ranks give way at once */
static double clock_cost_us;
static double free_core_ns; /* the least that was ever seen */
static double patience_us;

static void fail(const char* what) {
  fprintf(stderr, "bench: rank %d: %s\n", rank, what);
  _exit(1);
}

/* ---- sharing ---- */

static void open_page(const char* path) {
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0 || ftruncate(fd, sizeof *page) != 0) fail("cannot open the page file");
  page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (page == MAP_FAILED) fail("cannot map the page file");
  close(fd);
}

static void pause_or_yield(unsigned turn) {
  if (crowded || turn > 1000) {
    sched_yield();
  } else {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
  }
}

static void barrier(void) {
  const int now = __atomic_load_n(&page->generation, __ATOMIC_ACQUIRE);
  if (__atomic_add_fetch(&page->arrived, 1, __ATOMIC_ACQ_REL) == ranks) {
    __atomic_store_n(&page->arrived, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&page->generation, now + 1, __ATOMIC_RELEASE);
    return;
  }
  for (unsigned turn = 0; __atomic_load_n(&page->generation, __ATOMIC_ACQUIRE) == now; ++turn)
    pause_or_yield(turn);
}

void bench_post(const void* bytes, size_t size) {
  if (size > kMail) fail("mail is too long");
  memcpy(page->mail, bytes, size);
  __atomic_store_n(&page->mail_ready, 1, __ATOMIC_RELEASE);
}

void bench_fetch(void* bytes, size_t size) {
  if (size > kMail) fail("mail is too long");
  while (!__atomic_load_n(&page->mail_ready, __ATOMIC_ACQUIRE)) usleep(1000);
  memcpy(bytes, page->mail, size);
}

int bench_environment(const char* name) {
  const char* text = getenv(name);
  char* end = NULL;
  const long value = text != NULL ? strtol(text, &end, 10) : 0;
  if (text == NULL || end == text || *end != '\0' || value < 0 || value > 1 << 20) {
    fprintf(stderr, "bench: %s must be a whole number\n", name);
    _exit(2);
  }
  return (int)value;
}

/* This rank's processor: those that the driver may use, in the order in which ranks arrive. */
static void pin(void) {
  cpu_set_t all, one;
  if (sched_getaffinity(0, sizeof all, &all) != 0) fail("sched_getaffinity");
  int skip = __atomic_fetch_add(&page->tickets, 1, __ATOMIC_ACQ_REL) % CPU_COUNT(&all);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &all) || skip-- > 0) continue;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) fail("sched_setaffinity");
    return;
  }
}

/* ---- the state of the machine ---- */

struct state {
  double line_ns, core_ns; /* 0: not known */
};

/* Collective. Lines go between rank 0 and the first rank on another processor, if there is one. */
static struct state probe(void) {
  struct state found = {0, 0};
  page->processors[rank] = sched_getcpu();
  barrier();
  int other = 1;
  while (other < ranks && page->processors[other] == page->processors[0]) ++other;
  if (other < ranks && (rank == 0 || rank == other))
    found.line_ns = probe_line_ns(&page->line, rank != 0, kLineWindows);
  barrier();
  page->core_ns[rank] = probe_core_ns();
  barrier();
  for (int r = 0; r < ranks; ++r)
    if (page->core_ns[r] > found.core_ns) found.core_ns = page->core_ns[r];
  return found;
}

/* As states.py has them. */
static int moved(struct state a, struct state b) {
  const double factor = 1.7;
  return a.line_ns > factor * b.line_ns || b.line_ns > factor * a.line_ns;
}

static int disturbed(struct state now) {
  const double factor = 1.3;
  return now.core_ns > factor * free_core_ns;
}

/* Rank 0's word, for all. */
static int agree(int yes) {
  if (rank == 0) page->again = yes;
  barrier();
  const int agreed = page->again;
  barrier();
  return agreed;
}

/* Waits for somebody else to leave the cores, though not for ever. */
static struct state wait_for_cores(void) {
  for (;;) {
    const struct state now = probe();
    if (free_core_ns == 0 || now.core_ns < free_core_ns) free_core_ns = now.core_ns;
    if (!agree(disturbed(now) && patience_us > 0)) return now;
    patience_us -= kNapUs;
    usleep(kNapUs);
  }
}

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

static double measure_clock(void) {
  enum { kReads = 10001 };
  static double gaps[kReads];
  for (int i = 0; i < kReads; ++i) {
    const double before = now_us();
    gaps[i] = now_us() - before;
  }
  qsort(gaps, kReads, sizeof *gaps, ascending);
  return gaps[kReads / 2];
}

static const struct bench_library* library;

struct task {
  int op, type;
  void *send, *recv;
  size_t count, bytes, result; /* elements and bytes of the larger buffer; elements of the result */
  unsigned round;
  long wrong;
};

static size_t elements_sent(const struct task* t) {
  return t->op == BENCH_ALLGATHER ? t->count / (size_t)ranks : t->count;
}

static double iterate(struct task* t) {
  const unsigned round = ++t->round;
  const int root = (int)(round % (unsigned)ranks);
  values_write(t->type, t->send, elements_sent(t) * bench_type_size(t->type), round);
  if (t->bytes >= kBarrierFrom) barrier();
  const double start = now_us();
  const int failed = library->run(t->op, t->type, t->send, t->recv, t->count, root);
  const double end = now_us();
  if (failed) fail("the operation failed");
  /* Where ranks share a processor, nobody's rewriting may hold up those who are not done yet. */
  if (t->bytes >= kBarrierFrom) barrier();
  t->wrong += values_check_spots(t->type, t->recv, round);
  const double took = end - start - clock_cost_us;
  return took > 0.001 ? took : 0.001;
}

static void iterate_and_check_all(struct task* t) {
  iterate(t);
  t->wrong += values_check_all(t->op, t->type, t->recv, t->result, t->count, t->round,
                               (int)(t->round % (unsigned)ranks));
}

/* How many iterations fill the time: told by rank 0 after a few, so that all ranks agree. */
static long agree_on_iterations(struct task* t, double seconds) {
  const int tries = 3;
  iterate(t);
  barrier();
  const double start = now_us();
  for (int i = 0; i < tries; ++i) iterate(t);
  barrier();
  if (rank == 0) {
    const double each = (now_us() - start) / tries;
    double fit = seconds * 1e6 / each;
    if (fit < kFewest) fit = kFewest;
    if (fit > kMaxIterations) fit = kMaxIterations;
    page->iterations = (long)fit;
  }
  barrier();
  return page->iterations;
}

static void print_figures(const char* op, const char* type, size_t bytes, long iterations,
                          struct state before, struct state after) {
  double* slowest = page->times[0];
  long wrong = 0;
  for (int r = 0; r < ranks; ++r) {
    wrong += page->wrong[r];
    for (long i = 0; i < iterations; ++i)
      if (page->times[r][i] > slowest[i]) slowest[i] = page->times[r][i];
  }
  qsort(slowest, (size_t)iterations, sizeof *slowest, ascending);
  /* The mean of the middle half: as steady as the median, and finer than the clock's steps. */
  const long low = iterations / 4, high = iterations - low;
  double middle = 0;
  for (long i = low; i < high; ++i) middle += slowest[i] / (double)(high - low);
  printf(
      "BENCH {\"op\": \"%s\", \"type\": \"%s\", \"bytes\": %zu, \"ranks\": %d, \"iterations\": "
      "%ld, "
      "\"us\": %.4f, \"median_us\": %.4f, \"p10_us\": %.4f, \"p90_us\": %.4f, \"min_us\": %.4f, ",
      op, type, bytes, ranks, iterations, middle, slowest[iterations / 2], slowest[iterations / 10],
      slowest[iterations * 9 / 10], slowest[0]);
  if (before.line_ns > 0) printf("\"line_ns\": [%.1f, %.1f], ", before.line_ns, after.line_ns);
  printf("\"core_ns\": [%.0f, %.0f], ", before.core_ns, after.core_ns);
  printf("\"wrong\": %ld}\n", wrong);
  fflush(stdout);
}

static long time_size(struct task* t, const char* op, const char* type, double seconds) {
  values_choose_spots(t->op, t->type, t->result, t->count);
  if (library->prepare && library->prepare(t->op, t->type, t->send, t->recv, t->count))
    fail("preparing failed");
  iterate_and_check_all(t);
  long iterations;
  struct state before, after;
  for (int attempt = 1;; ++attempt) {
    before = wait_for_cores();
    iterations = agree_on_iterations(t, seconds / 4); /* warm up: a quarter, not counted */
    for (long i = 0; i < iterations; ++i) iterate(t);
    iterations = agree_on_iterations(t, seconds);
    for (long i = 0; i < iterations; ++i) page->times[rank][i] = iterate(t);
    after = probe();
    if (!agree(attempt < kAttempts && (moved(before, after) || disturbed(after)))) break;
  }
  iterate_and_check_all(t);
  page->wrong[rank] = t->wrong;
  barrier();
  if (rank == 0) print_figures(op, type, t->bytes, iterations, before, after);
  barrier();
  return t->wrong;
}

/* ---- the command line ---- */

static const char* const kOpNames[] = {"allreduce", "broadcast", "allgather", "reduce_scatter",
                                       "alltoall"};
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

int bench_main(int argc, char** argv, const struct bench_library* given) {
  struct bench_options o = {NULL, "private", 0, 0, 0.3, 60, 0};
  char *ops = NULL, *sizes = NULL;
  const char* type_name = "fp32";
  for (int i = 1; i < argc; ++i) {
    const char* name = argv[i];
    if (strcmp(name, "--pin") == 0) {
      o.pin = 1;
      continue;
    }
    char* text = i + 1 < argc ? argv[++i] : NULL;
    if (text == NULL) name = "";
    if (strcmp(name, "--page") == 0)
      o.page = text;
    else if (strcmp(name, "--ops") == 0)
      ops = text;
    else if (strcmp(name, "--sizes") == 0)
      sizes = text;
    else if (strcmp(name, "--type") == 0)
      type_name = text;
    else if (strcmp(name, "--memory") == 0)
      o.memory = text;
    else if (strcmp(name, "--chunk") == 0)
      o.chunk = parse_size(text);
    else if (strcmp(name, "--seconds") == 0)
      o.seconds = parse_seconds(text);
    else if (strcmp(name, "--core") == 0)
      free_core_ns = parse_seconds(text);
    else if (strcmp(name, "--limit") == 0)
      o.limit = (unsigned)parse_seconds(text);
    else {
      fprintf(stderr, "bench: do not understand '%s'\n", argv[i]);
      return 2;
    }
  }
  if (o.page == NULL || ops == NULL || sizes == NULL) {
    fprintf(stderr, "bench: --page, --ops and --sizes are needed\n");
    return 2;
  }
  const int type = find(kTypeNames, BENCH_TYPES, type_name);
  char *rest = NULL, *list = strdup(sizes);
  for (char* s = strtok_r(list, ",", &rest); s; s = strtok_r(NULL, ",", &rest))
    if (parse_size(s) > o.largest) o.largest = parse_size(s);
  free(list);

  /* A rank never outlives its launcher or its time. */
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(o.limit);
  patience_us = kPatience * o.seconds * 1e6;
  library = given;
  open_page(o.page);
  cpu_set_t processors;
  if (sched_getaffinity(0, sizeof processors, &processors) != 0) fail("sched_getaffinity");
  if (o.pin) pin();
  char version[BENCH_TEXT] = "";
  if (library->open(&o, &rank, &ranks, version) != 0) fail("joining failed");
  if (ranks < 1 || ranks > BENCH_MAX_RANKS) fail("too many ranks");
  crowded = ranks > CPU_COUNT(&processors);
  values_begin(type, rank, ranks);
  clock_cost_us = measure_clock();
  for (char* c = version; *c; ++c)
    if (*c < ' ' || *c == '"' || *c == '\\') *c = ' ';
  if (rank == 0) {
    printf("BENCH {\"version\": \"%s\", \"ranks\": %d, \"memory\": \"%s\", \"clock_us\": %.4f}\n",
           version, ranks, o.memory, clock_cost_us);
    fflush(stdout);
  }

  void* send = allocate(o.largest < 4096 ? 4096 : o.largest);
  void* recv = NULL; /* made only when an operation out of place comes */
  long wrong = 0;
  char* op_rest = NULL;
  for (char* op = strtok_r(ops, ",", &op_rest); op; op = strtok_r(NULL, ",", &op_rest)) {
    struct task t = {0};
    t.op = find(kOpNames, BENCH_OPS, op);
    t.type = type;
    t.send = t.recv = send;
    if (t.op != BENCH_ALLREDUCE && t.op != BENCH_BROADCAST) {
      if (recv == NULL) recv = allocate(o.largest < 4096 ? 4096 : o.largest);
      t.recv = recv;
    }
    list = strdup(sizes);
    for (char* s = strtok_r(list, ",", &rest); s; s = strtok_r(NULL, ",", &rest)) {
      t.bytes = parse_size(s);
      t.count = t.bytes / bench_type_size(type);
      if (t.op != BENCH_ALLREDUCE && t.op != BENCH_BROADCAST) t.count -= t.count % (size_t)ranks;
      if (t.count == 0) continue;
      t.result = t.op == BENCH_REDUCE_SCATTER ? t.count / (size_t)ranks : t.count;
      t.wrong = 0;
      wrong += time_size(&t, op, type_name, o.seconds);
    }
    free(list);
  }
  library->close();
  if (wrong > 0) fprintf(stderr, "bench: rank %d: WRONG RESULTS\n", rank);
  return wrong > 0 ? 3 : 0;
}
