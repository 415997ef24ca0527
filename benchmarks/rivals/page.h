/* The memory that the ranks of a run share: a page for barriers and short messages. Used by
 * method.c only. */
#ifndef BENCHMARKS_RIVALS_PAGE_H_
#define BENCHMARKS_RIVALS_PAGE_H_

#include "method.h"

enum { kMail = 8192 };

/* The shared values. They begin as zeros. Each word that a rank writes while other ranks wait has
 * its own cache lines. */
struct page {
  int tickets;
  char pad0[124];
  int arrived;
  char pad1[124];
  int generation;
  char pad2[124];
  int mail_ready;
  char pad3[124];
  int ping;
  char pad4[252];
  int pong;
  char pad5[252];
  int again;
  long iterations;
  int processors[BENCH_MAX_RANKS];
  long wrong[BENCH_MAX_RANKS];
  double loop_us[BENCH_MAX_RANKS], rewrite_us[BENCH_MAX_RANKS];
  char mail[kMail];
};

extern struct page* page;
extern int rank, ranks;
extern int crowded; /* more ranks than processors: waiting ranks give way at once */

void open_page(const char* path);
/* Ends the program with a message. */
void fail(const char* what);
/* Waits until the word differs from `unlike`. */
void await(const int* word, int unlike);
void barrier(void);
/* Binds this rank to a processor of its own. Ranks take the processors that the driver may use, in
 * the order of their arrival. */
void pin(void);

#endif /* BENCHMARKS_RIVALS_PAGE_H_ */
