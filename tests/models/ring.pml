/* A ring of frames and the sleeps of its two ranks; either may die at any step.
 * Mirrors transport/shm/ring.h: room, put, peek, release; transport/shm/link.cc: push, drain, release, wake,
 * wake_writer; transport/shm/sleeper.h: prepare, awake; hccl/base/socket.cc: EpollSleeper;
 * hccl/exec/executor.cc: drive (sleeps only when nothing moves).
 *
 * MESSAGES frames go through a ring with room for ROOM; a frame is its number.
 * Mutants: NO_MONITOR, NO_PREPARE (a rank says that it sleeps after its last look), NO_WAITING (the writer does not
 * say that it waits), EARLY_TAIL (a frame's room is given back before it is read), EARLY_HEAD (a frame is published
 * before it is written), ONE_LOOK (a rank sleeps though something has moved). The look after `waiting` is not
 * needed by ranks that sleep: they look again after `asleep`. */
#ifndef MESSAGES
#define MESSAGES 5
#endif
#define ROOM 2

byte ring[ROOM];
byte head, tail;
bool waiting;                      /* the writer waits for room */
bool asleep[2], event[2];          /* 0: the writer, 1: the reader; event: the eventfd */
bool aborted[2];
byte dead;

inline crash() { if :: dead == 0 -> dead = me + 1; goto died :: skip fi }
inline wake(who) {
  if
  :: asleep[who] -> crash();
     if :: atomic { asleep[who] -> asleep[who] = false }; crash(); event[who] = true :: !asleep[who] fi
  :: else
  fi
}
inline doze() {                    /* polls the eventfd; an abort writes it, too */
  event[me];
  asleep[me] = false;
  event[me] = false
}

proctype writer() {
  byte sent = 0; bool moved, said = false, slept; byte me = 0;
  do
  :: sent == MESSAGES -> break
  :: else ->
    slept = false;
again:
    moved = false;
    if
    :: aborted[me] -> goto over
    :: else
    fi;
    if
    :: head - tail < ROOM ->
#ifdef EARLY_HEAD
      head++; crash(); ring[sent % ROOM] = sent;
#else
      ring[sent % ROOM] = sent; crash(); head++;
#endif
      sent++; moved = true; crash();
      wake(1);
      if :: said -> said = false; waiting = false :: else fi
    :: else ->
      if
      :: !said ->
#ifndef NO_WAITING
        waiting = true;
#endif
        said = true; crash();
        goto again
      :: else
      fi
    fi;
    if
    :: moved -> skip
    :: !moved && !slept ->
#ifndef NO_PREPARE
      asleep[me] = true;
#endif
      slept = true; crash(); goto again
    :: !moved && slept ->
#ifdef NO_PREPARE
      asleep[me] = true;
#endif
      doze()
    fi
  od;
over:
  skip;
died:
  skip
}

proctype reader() {
  byte got = 0; bool moved, slept; byte me = 1;
  do
  :: got == MESSAGES -> break
  :: else ->
    slept = false;
again:
    moved = false;
    if
    :: aborted[me] -> goto over
    :: else
    fi;
    if
    :: head > got ->
#ifdef EARLY_TAIL
      tail++; crash();
      assert(ring[got % ROOM] == got);
#else
      assert(ring[got % ROOM] == got); crash();
      tail++;
#endif
      got++; moved = true; crash();
      if :: waiting -> wake(0) :: else fi
    :: else
    fi;
#ifdef ONE_LOOK
    if :: got == MESSAGES -> goto over :: else fi;
    if :: slept -> moved = false :: else fi;
#endif
    if
    :: moved -> skip
    :: !moved && !slept ->
#ifndef NO_PREPARE
      asleep[me] = true;
#endif
      slept = true; crash(); goto again
    :: !moved && slept ->
#ifdef NO_PREPARE
      asleep[me] = true;
#endif
      doze()
    fi
  od;
over:
  skip;
died:
  skip
}

#ifndef NO_MONITOR
/* The control line of the survivor: Failure::raise() aborts the mesh, which raises the flag and rings. */
proctype line(byte to) {
end:
  dead != 0 && dead != to + 1 -> aborted[to] = true; event[to] = true
}
#endif

init {
  atomic {
    run writer(); run reader();
#ifndef NO_MONITOR
    run line(0); run line(1)
#endif
  }
}
