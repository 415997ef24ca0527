#define _GNU_SOURCE  // NOLINT(bugprone-reserved-identifier): the C library asks for it
#include "page.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct page* page;
int rank, ranks, crowded;

void fail(const char* what) {
  fprintf(stderr, "bench: rank %d: %s\n", rank, what);
  _exit(1);
}

void open_page(const char* path) {
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0 || ftruncate(fd, sizeof *page) != 0) fail("cannot open the page file");
  page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (page == MAP_FAILED) fail("cannot map the page file");
  close(fd);
}

void await(const int* word, int unlike) {
  for (unsigned turn = 0; __atomic_load_n(word, __ATOMIC_ACQUIRE) == unlike; ++turn)
    if (crowded || turn > 100000) sched_yield(); /* the writer may have lost its processor */
}

void barrier(void) {
  const int now = __atomic_load_n(&page->generation, __ATOMIC_ACQUIRE);
  if (__atomic_add_fetch(&page->arrived, 1, __ATOMIC_ACQ_REL) == ranks) {
    __atomic_store_n(&page->arrived, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&page->generation, now + 1, __ATOMIC_RELEASE);
    return;
  }
  await(&page->generation, now);
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

void pin(void) {
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
