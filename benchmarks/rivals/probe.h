/* The state of the machine. Virtual processors move: a cache line then takes another time from one
 * to the other; and somebody else's thread may run on the other half of a processor's core, which
 * then does about half of its work. */
#ifndef BENCHMARKS_RIVALS_PROBE_H_
#define BENCHMARKS_RIVALS_PROBE_H_

#ifdef __cplusplus
extern "C" {
#endif

/** Shared by the two sides; begins as zeros. */
struct probe_line {
  int ping;
  char pad0[252];
  int pong;
  char pad1[252];
};

/** Called on two processors at a time, with sides 0 and 1: nanoseconds that a cache line takes from
 * one to the other, the median of many short windows. Good on side 0. */
double probe_line_ns(struct probe_line* line, int side, int windows);

/** Nanoseconds that a thousand times eight independent additions take, the median of short
 * windows: about 700 where the core is this thread's alone, twice that where it is not. */
double probe_core_ns(void);

#ifdef __cplusplus
}
#endif
#endif /* BENCHMARKS_RIVALS_PROBE_H_ */
