"""Waits until another process is in a certain state."""

import pathlib
import time


def until_it_sleeps(pid):
    """Returns once the main thread has slept for half a second in all: it then waits, however slow the machine is."""
    asleep = 0
    while asleep < 50:
        time.sleep(0.01)
        state = pathlib.Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(") ")[2][0]
        assert state not in "ZX", "it has ended"
        asleep += state == "S"
