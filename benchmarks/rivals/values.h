/* The contents of the ranks' buffers, and the expected results. Values are whole numbers that
 * differ by rank, element and round, and are so small that sums over 16 ranks are exact in every
 * type. A round is an iteration; its root is rank round % ranks. `count` is the number of elements
 * of the larger buffer, as in method.h. One thread only. */
#ifndef BENCHMARKS_RIVALS_VALUES_H_
#define BENCHMARKS_RIVALS_VALUES_H_

#include <stddef.h>

/** Sets the element type and this rank. Must be called before all other functions. */
void values_begin(int type, int own_rank, int all_ranks);

/** Writes the values of this rank in a round. */
void values_write(int type, void* buffer, size_t bytes, unsigned round);

/** Checks all `elements` elements of the result. Returns the number of wrong elements. */
long values_check_all(int op, int type, const void* result, size_t elements, size_t count,
                      unsigned round, int root);

/** Chooses the elements that values_check_spots checks: the first, the last and one more. */
void values_choose_spots(int op, int type, size_t elements, size_t count);
long values_check_spots(int type, const void* result, unsigned round);

#endif /* BENCHMARKS_RIVALS_VALUES_H_ */
