"""Processes that begin with modules already imported: a server imports them once, and forks each process.

Such a process differs from one that Python starts. The modules were imported before. Its hash seed is the server's.
/proc shows the server's command line and variables. At its end, the objects that the imports made are not collected as
garbage. Otherwise it ends like any other process, by the interpreter's own end.
"""

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import types


class Server:
    """Forks processes of Python that have imported `modules` with the variables `environment`. Ends with this process.
    One thread at a time may use it."""

    def __init__(self, modules, environment):
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), *modules],
                env=environment,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the tests
            )
        atexit.register(process.wait)
        atexit.register(self._channel.close)  # first: it ends the server

    def ask(self, files=(), **request):
        socket.send_fds(self._channel, [json.dumps(request).encode()], [file.fileno() for file in files])
        answer = self._channel.recv(64)
        assert answer, "the server of forks has ended; its error is above"
        return int(answer)


class Process:
    """`python command...`, forked by a server. Has the members of subprocess.Popen that tests use, and raises the same
    errors."""

    def __init__(self, server, command, environment):
        self.returncode, self._server, self._command = None, server, command
        self._files = [tempfile.TemporaryFile("w+") for _ in range(2)]
        self.pid = server.ask(self._files, command=command, environment=dict(environment), folder=os.getcwd())
        self._ends = os.pidfd_open(self.pid)

    def wait(self, timeout=None):
        if self.returncode is None:
            if not select.select([self._ends], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self._command, timeout)
            self.returncode = self._server.ask(wait=self.pid)
            os.close(self._ends)
        return self.returncode

    def communicate(self, timeout=None):
        """Waits for the end; returns the output and the errors."""
        self.wait(timeout)
        for file in self._files:
            file.seek(0)
        return tuple(file.read() for file in self._files)

    def kill(self):
        if self.returncode is None:
            signal.pidfd_send_signal(self._ends, signal.SIGKILL)
            self.wait()


def _serve(channel):
    """Answers requests. In each forked process, it returns the request of that process."""
    while True:
        message, files, _, _ = socket.recv_fds(channel, 1 << 20, 2)
        if not message:
            os._exit(0)
        request = json.loads(message)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            channel.send(b"%d" % os.waitstatus_to_exitcode(status))
            continue
        child = os.fork()
        if child == 0:
            channel.close()
            for target, file in enumerate(files, 1):
                os.dup2(file, target)
        for file in files:
            os.close(file)
        if child == 0:
            return request
        channel.send(b"%d" % child)


def _renew():
    """Gives the process its own copies of state that the imports made: random numbers, and an output that is flushed at
    the very end. The imported modules live until then, and do not keep this output alive."""
    for name in ("random", "numpy.random"):
        if name in sys.modules:
            sys.modules[name].seed()
    sys.stdout.reconfigure(write_through=True)
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)


def _program(command, environment, folder):
    """Sets the process's arguments, variables and folder; returns the program's code, and the names of __main__."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if command[0] == "-c":
        text, name, sys.path[0] = command.pop(1), "<string>", ""
    else:
        name = main.__file__ = os.path.abspath(command[0])
        with open(name, "rb") as file:
            text, sys.path[0] = file.read(), os.path.dirname(os.path.realpath(name))
    sys.argv = command
    return compile(text, name, "exec"), main.__dict__


if __name__ == "__main__":
    for module in sys.argv[2:]:
        __import__(module)
    if len(os.listdir("/proc/self/task")) > 1:
        sys.exit("forks: the modules have started threads, which a fork leaves behind")
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy all these objects, which takes a second
    request = _serve(socket.socket(fileno=int(sys.argv[1])))
    _renew()
    exec(*_program(**request))  # here, so that the interpreter handles exceptions, Ctrl-C and the end
