/* How a failure reaches all ranks: control lines to the coordinator, which lies in the process of rank 0.
 * Mirrors hccl/join/membership.cc (death, report, verdict), hccl/join/control_line.cc (report, the reading thread),
 * hccl/core/failure.cc (raise: the first reason stays); hccl/base/abort_flag.h.
 *
 * One rank of N, the coordinator's included, may die at any step, and rank 1 may abort as well. Reasons: 0 none,
 * 1 + r: rank r died, ABORT: rank 1 aborted.
 * Mutants: DEAF (the coordinator does not see that a line has closed), NO_EOF (a rank does not see that the
 * coordinator's line has closed), ONE_ONLY (the coordinator tells one rank), LAST_WINS (a later reason replaces the
 * first), NO_ABORT_REPORT (the rank that aborts tells nobody). */
#ifndef N
#define N 4
#endif
#define ABORT 100

byte reason[N];
byte told[N];                      /* what the coordinator has sent to each rank */
byte verdict;
byte dead;                         /* 1 + the rank */
bool reported;

#define CRASH if :: me == mortal && dead == 0 -> dead = me + 1; goto died :: true fi
byte mortal;

inline raise(why) {
#ifdef LAST_WINS
  assert(reason[me] == 0 || reason[me] == why);
  reason[me] = why
#else
  if :: reason[me] == 0 -> reason[me] = why :: else fi
#endif
}

proctype coordinator() {
  byte me = 0, to = 0;
end:
  if
  :: atomic { reported && dead != 1 -> verdict = ABORT }
#ifndef DEAF
  :: atomic { dead > 1 -> verdict = dead }
#endif
  :: atomic { dead == 1 -> goto died }
  fi;
  do
  :: atomic { dead == 1 -> goto died }
  :: atomic { to < N && dead != 1 -> CRASH; told[to] = verdict; to++
#ifdef ONE_ONLY
       ; goto died
#endif
     }
  :: atomic { to == N -> break }
  od;
died:
  atomic { me = 0; to = 0 }
}

/* The reading thread of a rank's control line. What came before the end of the line is read first. */
proctype line(byte me) {
end:
  do
  :: atomic { dead == me + 1 -> break }
  :: atomic { dead != me + 1 && told[me] != 0 -> CRASH; raise(told[me]); break }
#ifndef NO_EOF
  :: atomic { dead == 1 && me != 0 && told[me] == 0 -> raise(1); break }
#endif
  od;
died:
  skip
}

/* The thread that runs the operations: it waits for peers, which may be dead. Ends by its abort flag. */
proctype user(byte me) {
  if
  :: me == 1 ->                    /* may abort; else waits like the others */
    if
    :: atomic { CRASH; raise(ABORT) };
#ifndef NO_ABORT_REPORT
       atomic { CRASH; reported = true }
#endif
    :: true
    fi
  :: else
  fi;
  if
  :: atomic { reason[me] != 0 -> assert(reason[me] == ABORT || reason[me] == dead) }
  :: atomic { dead == me + 1 -> goto died }
  :: atomic { dead == 0 && reason[1] == 0 && timeout -> skip }   /* no failure: its peers will come */
  fi;
  skip;
died:
  skip
}

init {
  byte i = 0;
  atomic {
    if :: mortal = 0 :: mortal = 1 :: mortal = 2 :: mortal = N fi;
    run coordinator();
    do
    :: i < N -> run line(i); run user(i); i++
    :: else -> break
    od
  }
}
