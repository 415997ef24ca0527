/* The shared region: announcing, waiting, barriers, reuse of slots; a crash at every step.
 * Mirrors hccl/local/region.h: begin, announce, await_announced, barrier, withdraw; hccl/base/waiter.h: run;
 * hccl/exec/local_engine.cc: rendezvous. Atomics are sequentially consistent here: model_test weakens them.
 *
 * ROUNDS operations of N ranks. A rank's slot (one of two) has the number of the operation and its payload.
 * Mutants: NO_MONITOR, NO_POLL (a waiter does not look at the abort flag), ONE_SLOT, NO_AWAIT (a rank does
 * not wait for announcements), EARLY_WORD (the word is stored before the payload). */
#ifndef N
#define N 4
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifdef ONE_SLOT
#define SLOT(r, n) ((r) * 2)
#else
#define SLOT(r, n) ((r) * 2 + (n) % 2)
#endif
#define FLAG(r) (aborted & (1 << (r)))

byte word[N * 2];     /* 0: nothing; else the number of the operation */
byte payload[N * 2];
byte barriers[N];
byte aborted;         /* a bit for each rank: its abort flag */
byte dead;            /* the rank that has died, plus one */

/* Before each step that others see. Ranks are alike, so the mortal one is rank 0. */
#define CRASH if :: me == 0 && dead == 0 -> dead = 1; goto died :: true fi

#ifdef NO_POLL
#define OR_ABORTED false
#else
#define OR_ABORTED FLAG(me)
#endif

proctype rank(byte me) {
  byte number = 1, peer = 0;
  do
  :: number > ROUNDS -> break
  :: else ->
#ifdef EARLY_WORD
    atomic { CRASH; word[SLOT(me, number)] = number }
    atomic { CRASH; payload[SLOT(me, number)] = number }
#else
    atomic { CRASH; payload[SLOT(me, number)] = number }
    atomic { CRASH; word[SLOT(me, number)] = number }
#endif
#ifndef NO_AWAIT
    do
    :: atomic { peer == N -> peer = 0; break }
    :: atomic { peer == me -> peer++ }
    :: atomic { peer < N && peer != me && word[SLOT(peer, number)] == number -> peer++ }
    :: atomic { peer < N && peer != me && OR_ABORTED -> goto failed }
    od;
#endif
    do      /* all have announced: their payloads are there, and are not reused */
    :: atomic { peer == N -> peer = 0; break }
    :: atomic { peer < N -> CRASH; assert(payload[SLOT(peer, number)] == number); peer++ }
    od;
    atomic { number++ }
  od;
  atomic { CRASH; barriers[me] = 1 }      /* the last operation ends with a barrier */
  do
  :: atomic { peer == N -> peer = 0; break }
  :: atomic { peer < N && barriers[peer] == 1 -> peer++ }
  :: atomic { peer < N && OR_ABORTED -> goto failed }
  od;
  goto over;
failed:
  assert(dead != 0);                      /* nobody fails while all live */
over:
  atomic { number = 0; peer = 0 }
died:
  atomic { number = 0; peer = 0 }
}

#ifndef NO_MONITOR
/* The control lines: once a rank is dead, each survivor is told on its own, in any order. */
proctype line(byte to) {
end:
  dead != 0 -> aborted = aborted | (1 << to)
}
#endif

init {
  byte i = 0;
  atomic {
    do
    :: i < N ->
      run rank(i);
#ifndef NO_MONITOR
      if :: i != 0 -> run line(i) :: else fi;
#endif
      i++
    :: else -> break
    od
  }
}
