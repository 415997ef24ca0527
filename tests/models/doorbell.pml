/* The doorbell: sleepers that poll a condition and an abort flag, ringers, and a futex between them.
 * Mirrors hccl/base/doorbell.h: ring, wake, prepare, sleep, awake; hccl/base/waiter.h: run;
 * hccl/base/atomics.cc: sleep, wake_all. One ringer may die at any step; a control line then aborts each sleeper.
 *
 * Two ringers store a flag each and ring; two sleepers wait for both flags.
 * Mutants: NO_MONITOR, NO_WAKE (the control line raises the flag only), NO_SECOND_LOOK, LATE_SLEEPER (counts
 * itself after it looked), NO_RINGS (a wake-up does not change the futex word), NO_POLL. */
#define RINGERS 2
#define SLEEPERS 2

byte flag[RINGERS];
byte sleepers, rings, asleep;      /* asleep: a bit for each sleeper in the futex */
bool aborted[SLEEPERS];
byte dead;

#define READY (flag[0] && flag[1])
#ifdef NO_POLL
#define ABORTED false
#else
#define ABORTED aborted[me]
#endif

inline wake() {
#ifndef NO_RINGS
  rings++;
#endif
  asleep = 0                       /* futex: wakes all */
}

proctype ringer(byte me) {
  if :: me == 0 && dead == 0 -> dead = 1; goto died :: skip fi;
  flag[me] = 1;
  if :: me == 0 && dead == 0 -> dead = 1; goto died :: skip fi;
  if
  :: sleepers != 0 ->
    if :: me == 0 && dead == 0 -> dead = 1; goto died :: skip fi;
#ifndef NO_RINGS
    rings++;
#endif
    if :: me == 0 && dead == 0 -> dead = 1; goto died :: skip fi;
    asleep = 0
  :: else
  fi;
died:
  skip
}

proctype sleeper(byte me) {
  byte ticket;
  do
  :: READY -> break
  :: else ->
    if :: ABORTED -> break :: else fi;
#ifndef LATE_SLEEPER
    sleepers++;
#endif
    ticket = rings;
#ifndef NO_SECOND_LOOK
    if
    :: READY -> skip
    :: else ->
      if
      :: ABORTED
      :: else ->
#endif
#ifdef LATE_SLEEPER
        sleepers++;
#endif
        if
        :: atomic { rings == ticket -> asleep = asleep | (1 << me) }   /* the kernel compares and queues at once */
          !(asleep & (1 << me))
        :: rings != ticket
        fi
#ifndef NO_SECOND_LOOK
      fi
    fi
#endif
    ;
    sleepers--
  od;
  assert(READY || dead != 0)
}

#ifndef NO_MONITOR
proctype line(byte to) {
end:
  dead != 0;
  aborted[to] = true;
#ifndef NO_WAKE
  wake()
#endif
}
#endif

init {
  atomic {
    run ringer(0); run ringer(1); run sleeper(0); run sleeper(1);
#ifndef NO_MONITOR
    run line(0); run line(1)
#endif
  }
}
