/* How two ranks that need a connection, each or both, get one: the words in their inboxes, their calls and doors.
 * Mirrors transport/tcp/inbox.cc, dialer.cc (try_once, failed, greet, give_up) and door.cc (greet).
 *
 * Both ends connect; either may die at any step. FAULTS calls break, before the hello or after it. A connection is
 * named by its call. At the end each end that lives has a connection or a failure. Both have the same one, or each
 * notices the end of its own: its peer is dead, or has closed it or failed.
 * Mutants: NO_ORDER (the lower rank's call is welcome while the higher rank connects), NO_LOOK (a call that is told
 * "ended" fails, though the peer's connection has come), LATE_WORD
 * (the door takes a connection before it says so in the word). */
#ifndef FAULTS
#define FAULTS 1
#endif
#define CALLS 4
#define NONE 0
#define CONNECTING 1
#define OPEN 2

mtype = { welcome, crossed, ended };

byte word[2], arrived[2], conn[2];
bool failed[2], over[2];
bool closed[20];                   /* connections, by name */
byte dead, faults;                 /* dead: 1 + the end */
chan hello[2] = [CALLS] of { byte };           /* at the door of this end: names */
chan answer[2] = [CALLS] of { byte, mtype };       /* to the call of this end */

#define NAME(end, call) (1 + (end) * CALLS + (call))
#define PEER (1 - me)
#define CRASH if :: atomic { dead == 0 -> dead = me + 1; goto died } :: true fi

/* The own call ends. `taken`: the peer's connection has come instead. */
#define END(state) atomic { taken = word[me] == OPEN; if :: taken -> skip :: else -> word[me] = state fi }

proctype mesh(byte me) {
  byte call = 0, name;
  mtype told;
  bool taken;
again:
  CRASH;
  if
  :: arrived[me] != 0 -> conn[me] = arrived[me]; goto done
  :: atomic { word[me] != OPEN && call < CALLS -> word[me] = CONNECTING }
  :: word[me] != OPEN && call == CALLS -> failed[me] = true; goto done
  fi;
  name = NAME(me, call);
  call++;
  if
  :: atomic { faults < FAULTS -> faults++; closed[name] = true }
     END(NONE);
     goto again
  :: hello[PEER] ! name
  fi;
  CRASH;
  if
  :: answer[me] ?? eval(name), told
  :: atomic { faults < FAULTS -> faults++; closed[name] = true }
     END(NONE);
     goto again
  :: dead == PEER + 1 -> told = ended
  fi;
  if
  :: told == welcome ->
     END(OPEN);
     if
     :: taken -> closed[name] = true; goto again
     :: else -> conn[me] = name; goto done
     fi
  :: told == crossed ->
     END(NONE);
     call--;                       /* it may call again, for as long as the peer connects */
     (word[PEER] != CONNECTING || arrived[me] != 0 || dead == PEER + 1);
     goto again
  :: told == ended ->
     END(NONE);
#ifdef NO_LOOK
     taken = false;
#endif
     if
     :: taken -> goto again
     :: else -> failed[me] = true
     fi
  fi;
done:
  over[me] = true;
died:
  skip
}

proctype door(byte me) {
  byte name;
  mtype says;
end:
  do
  :: dead == me + 1 -> break
  :: hello[me] ? name ->
#ifdef LATE_WORD
     byte seen = word[me];
#else
     atomic {
#define seen word[me]
#endif
     if
     :: seen == OPEN || failed[me] -> says = ended
#ifndef NO_ORDER
     :: seen == CONNECTING && me == 1 -> says = crossed
#endif
     :: else -> says = welcome; word[me] = OPEN
     fi
#ifndef LATE_WORD
     }
#endif
     ;
     if :: answer[PEER] ! name, says :: full(answer[PEER]) fi;
     if :: says == welcome -> arrived[me] = name :: else fi
  od
}

#define ENDS(e) (failed[e] || closed[conn[e]] || dead == 2 - (e) || failed[1 - (e)])

init {
  atomic { run mesh(0); run mesh(1); run door(0); run door(1) }
  (over[0] || dead == 1) && (over[1] || dead == 2);
  if
  :: over[0] && over[1] -> assert(conn[0] == conn[1] && conn[0] != 0 || faults != 0 && ENDS(0) && ENDS(1))
  :: else
  fi
}
