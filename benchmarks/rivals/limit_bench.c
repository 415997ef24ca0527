/* The staged limit: the least that a 2-rank allreduce of private buffers can cost through shared
 * memory, by the method of method.h. Each rank copies its vector in chunks into a ring of shared
 * slots and adds the other's slots to its own vector: one flag a chunk, no checks, no errors, no
 * other ranks. BENCH_RANK, BENCH_SIZE (2) say who this is, BENCH_RING names a file for the ring;
 * --chunk: bytes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "method.h"

enum { kRing = 2 << 20, kFlags = 4096 }; /* bytes: slots of one rank; the flags before them */

static int me;
static size_t chunk, slots;
static char* ring[2];       /* by rank */
static uint64_t* ready[2];  /* chunks that the rank has put into its ring so far */
static uint64_t put, taken; /* by this rank */

static int open_ring(const struct bench_options* options, int* rank, int* size, char* version) {
  const char* path = getenv("BENCH_RING");
  *rank = me = bench_environment("BENCH_RANK");
  *size = bench_environment("BENCH_SIZE");
  chunk = options->chunk ? options->chunk : 32 << 10;
  slots = kRing / chunk;
  if (*size != 2 || path == NULL || slots < 4 || kRing % chunk != 0) {
    fprintf(stderr, "limit: two ranks, BENCH_RING and a chunk of at most 512 KiB are needed\n");
    return 1;
  }
  const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, kFlags + 2 * kRing) != 0) return 1;
  char* all =
      mmap(NULL, kFlags + 2 * kRing, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  close(fd);
  if (all == MAP_FAILED) return 1;
  for (int r = 0; r < 2; ++r) {
    ready[r] = (uint64_t*)(void*)(all + r * 256);
    ring[r] = all + kFlags + r * kRing;
  }
  snprintf(version, BENCH_TEXT, "staged limit, chunks of %zu KiB, ring of 2 MiB", chunk >> 10);
  return 0;
}

static void wait_for(uint64_t chunks) {
  while (__atomic_load_n(ready[1 - me], __ATOMIC_ACQUIRE) < chunks) {
  }
}

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#endif
static void
add(float* restrict into, const float* restrict from, size_t count) {
  for (size_t i = 0; i < count; ++i) into[i] += from[i];
}

/* The other rank takes chunk j only after it has put chunk j + 1 (or all of its own), so its count
 * tells how far it has read: a slot is free again when the other has put two more than the chunk it
 * held. */
static int run(int op, int type, void* send, void* recv, size_t count, int root) {
  char* data = recv;
  const size_t bytes = count * sizeof(float), chunks = (bytes + chunk - 1) / chunk;
  (void)send, (void)root;
  if (op != BENCH_ALLREDUCE || type != BENCH_FP32) return 1;
  for (size_t k = 0; k <= chunks; ++k) {
    if (k < chunks) {
      const size_t length = k + 1 < chunks ? chunk : bytes - k * chunk;
      if (put >= slots) wait_for(put - slots + 2);
      memcpy(ring[me] + put % slots * chunk, data + k * chunk, length);
      __atomic_store_n(ready[me], ++put, __ATOMIC_RELEASE);
    }
    if (k > 0) {
      const size_t length = k < chunks ? chunk : bytes - (k - 1) * chunk;
      wait_for(taken + 1);
      add((float*)(void*)(data + (k - 1) * chunk),
          (const float*)(const void*)(ring[1 - me] + taken % slots * chunk),
          length / sizeof(float));
      ++taken;
    }
  }
  return 0;
}

static void close_ring(void) {}

int main(int argc, char** argv) {
  const struct bench_library library = {open_ring, NULL, NULL, run, close_ring};
  return bench_main(argc, argv, &library);
}
