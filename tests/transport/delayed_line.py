#!/usr/bin/env python3
"""A line with a delay: each frame that enters one of two TAP devices leaves the other device later.

    delayed_line.py DEVICE DEVICE MILLISECONDS

Prints "ready" when both devices exist, and forwards frames until it is killed. For kernels without netem.
"""

import collections
import fcntl
import os
import select
import struct
import sys
import time

TUNSETIFF = 0x400454CA
TAP_WITHOUT_HEADER = 0x1002


def device(name):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH", name.encode(), TAP_WITHOUT_HEADER))
    return fd


def main():
    ends = [device(name) for name in sys.argv[1:3]]
    delay = float(sys.argv[3]) / 1000
    print("ready", flush=True)
    frames = collections.deque()  # all frames wait equally long: first in, first out
    while True:
        wait = max(0, frames[0][0] - time.monotonic()) if frames else None
        for end in select.select(ends, [], [], wait)[0]:
            try:
                while True:
                    frame = os.read(end, 65536)
                    frames.append((time.monotonic() + delay, ends[end == ends[0]], frame))
            except OSError:
                pass  # no frame is left, or the device is not up yet
        while frames and frames[0][0] <= time.monotonic():
            _, end, frame = frames.popleft()
            try:
                os.write(end, frame)
            except OSError:
                pass  # the device is down: the frame is lost


main()
