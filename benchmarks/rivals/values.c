#include "values.h"

#include <stdint.h>
#include <string.h>

#include "method.h"

enum {
  kPeriod = 16, /* values repeat after this many elements */
  kTile = 4096  /* bytes; a multiple of kPeriod elements of every type */
};

static int rank, ranks;

size_t bench_type_size(int type) { return type == BENCH_FP32 ? 4 : 2; }

static unsigned value(int of_rank, size_t i, unsigned round) {
  return (unsigned)((i + 3 * (size_t)round) % kPeriod) / 2 + (unsigned)of_rank + 1;
}

static void encode(int type, unsigned number, void* out) {
  if (type == BENCH_FP16) {
    uint16_t bits = 0;
    if (number > 0) {
      unsigned exponent = 0;
      while (number >> (exponent + 1)) ++exponent;
      bits = (uint16_t)((exponent + 15) << 10 | (number - (1u << exponent)) << (10 - exponent));
    }
    memcpy(out, &bits, sizeof bits);
    return;
  }
  const float number32 = (float)number;
  uint32_t bits32;
  memcpy(&bits32, &number32, sizeof bits32);
  if (type == BENCH_FP32) {
    memcpy(out, &bits32, sizeof bits32);
  } else {
    const uint16_t bits16 = (uint16_t)(bits32 >> 16);
    memcpy(out, &bits16, sizeof bits16);
  }
}

/* A tile of this rank's values, long enough to begin at any position within a period. */
static char tile[kTile + kPeriod * sizeof(float)];

void values_begin(int type, int own_rank, int all_ranks) {
  rank = own_rank;
  ranks = all_ranks;
  const size_t width = bench_type_size(type);
  for (size_t i = 0; i < kTile / width + kPeriod; ++i)
    encode(type, value(rank, i, 0), tile + i * width);
}

void values_write(int type, void* buffer, size_t bytes, unsigned round) {
  const char* from = tile + 3 * (size_t)round % kPeriod * bench_type_size(type);
  for (; bytes > kTile; bytes -= kTile, buffer = (char*)buffer + kTile) memcpy(buffer, from, kTile);
  memcpy(buffer, from, bytes);
}

static unsigned sum(size_t i, unsigned round) {
  unsigned total = 0;
  for (int r = 0; r < ranks; ++r) total += value(r, i, round);
  return total;
}

/* Returns the expected value of element i of the result. */
static unsigned expected(int op, size_t i, size_t count, unsigned round, int root) {
  const size_t block = count / (size_t)ranks, mine = (size_t)rank * block;
  switch (op) {
    case BENCH_ALLREDUCE:
    case BENCH_REDUCE:
      return sum(i, round);
    case BENCH_BROADCAST:
      return value(root, i, round);
    case BENCH_ALLGATHER:
      return value((int)(i / block), i % block, round);
    case BENCH_REDUCE_SCATTER:
      return sum(mine + i, round);
    default: /* alltoall */
      return value((int)(i / block), mine + i % block, round);
  }
}

long values_check_all(int op, int type, const void* result, size_t elements, size_t count,
                      unsigned round, int root) {
  const size_t width = bench_type_size(type);
  const size_t block =
      op == BENCH_ALLGATHER || op == BENCH_ALLTOALL ? count / (size_t)ranks : elements;
  long wrong = 0;
  for (size_t begin = 0; begin < elements; begin += block) {
    /* The values of a block repeat with the period. */
    const char* at = (const char*)result + begin * width;
    const size_t first = block < kPeriod ? block : kPeriod;
    for (size_t i = 0; i < first; ++i) {
      char right[4];
      encode(type, expected(op, begin + i, count, round, root), right);
      wrong += memcmp(at + i * width, right, width) != 0;
    }
    wrong += memcmp(at, at + first * width, (block - first) * width) != 0;
  }
  return wrong;
}

/* The expected values are computed in advance, so that the time between two operations is short,
 * and the same on all ranks. */
enum { kSpots = 3 };
static struct {
  size_t at[kSpots];
  char right[kPeriod * BENCH_MAX_RANKS][kSpots][sizeof(float)];
} spots;

static unsigned rounds_until_repeat(void) { return (unsigned)(kPeriod * ranks); }

void values_choose_spots(int op, int type, size_t elements, size_t count) {
  spots.at[0] = 0;
  spots.at[1] = elements - 1;
  spots.at[2] = elements * 5 / 8;
  for (unsigned round = 0; round < rounds_until_repeat(); ++round)
    for (int k = 0; k < kSpots; ++k)
      encode(type, expected(op, spots.at[k], count, round, (int)(round % (unsigned)ranks)),
             spots.right[round][k]);
}

long values_check_spots(int type, const void* result, unsigned round) {
  const size_t width = bench_type_size(type);
  long wrong = 0;
  for (int k = 0; k < kSpots; ++k)
    wrong += memcmp((const char*)result + spots.at[k] * width,
                    spots.right[round % rounds_until_repeat()][k], width) != 0;
  return wrong;
}
