#!/usr/bin/env python3
"""layers_test.py SOURCE: which room includes which, which files sleep, which have state, how long functions of Python
are, and which modules of Python import each other.

The rooms and their dependencies are those of the design: a file may include only the files that its room may use. Each
finding is one line, "file:line: what is wrong"."""

import ast
import os
import re
import sys
import tempfile
import unittest

PUBLIC = ("hccl/hccl.h", "hccl/hccl_comm.h", "hccl/hccl_framework.h", "hccl/hccl_fusion.h",
          "hccl/hccl_optim.h", "hccl/hccl_types.h", "hccl/hcom.h",
          "hccl/acl/acl.h", "hccl/acl/acl_base.h", "hccl/acl/acl_base_rt.h", "hccl/acl/acl_mdl.h",
          "hccl/acl/acl_op.h", "hccl/acl/acl_prof.h", "hccl/acl/acl_rt.h", "hccl/acl/acl_rt_memory.h",
          "hccl/acl/error_codes/rt_error_codes.h")
TRANSPORT = "transport/*.h"  # the interface of the transports, without the transports themselves
BELOW_CORE = ["hccl/base", "hccl/memory", "hccl/kernels", "hccl/local", "hccl/schedule",
              "hccl/select", TRANSPORT, "hccl/exec", "hccl/files", "hccl/join"]
CORE = BELOW_CORE + ["hccl/core"]

# By room: the files that its files may include, besides each other.
ROOMS = {
    "public headers": ["public"],
    "hccl/base": [],
    "hccl/memory": ["hccl/base"],
    "hccl/kernels": ["hccl/base"],
    "hccl/optim": ["hccl/base/vector_targets.h", "hccl/kernels", "hccl/hccl_optim.h"],
    "hccl/local": ["hccl/base", "hccl/kernels"],
    "hccl/schedule": ["hccl/base"],
    "hccl/files": ["hccl/base"],
    "hccl/select": ["hccl/base", "hccl/kernels", "hccl/local", "hccl/schedule", "hccl/files"],
    "transport/*.h": ["hccl/base"],
    # The registry and the mesh both use the interfaces of the built-in transports.
    "transport": ["hccl/base", TRANSPORT, "transport/shm/shm.h", "transport/shm/sleeper.h",
                  "transport/tcp/tcp.h"],
    "transport/shm": ["hccl/base", "hccl/memory", TRANSPORT],
    "transport/tcp": ["hccl/base", TRANSPORT],
    "transport/ofi": ["hccl/base", TRANSPORT],
    "transport/mpi": ["hccl/base", TRANSPORT],
    "hccl/exec": ["hccl/base", "hccl/memory", "hccl/kernels", "hccl/local", "hccl/schedule",
                  "hccl/select", TRANSPORT],
    "hccl/join": ["hccl/base", "hccl/control", TRANSPORT],
    "hccl/control": ["hccl/base"],
    "hccl/core": BELOW_CORE,
    # The plugin uses the structs that it writes and reads.
    "hccl/files/plugin": BELOW_CORE + ["hccl/select/costs.h", "split/trace.h"],
    "split": ["hccl/base", "hccl/files"],
    "split/engine": CORE + ["split"],
    "hccl/acl": ["hccl/base", "hccl/memory", "public"],
    "hccl/api": CORE + ["split", "split/engine", "hccl/acl", "public"],
    "python": ["public"],
    "examples": ["public"],
    "benchmarks/perf": ["public"],
}
# Libraries that only these rooms may include.
LIBRARIES = {
    "mpi.h": ["transport/mpi", "python", "examples", "benchmarks/perf"],
    "rdma/": ["transport/ofi"],
    "pmix.h": ["hccl/join"],
    "hwy/": ["hccl/base", "hccl/kernels", "hccl/optim"],
    "spdlog/": ["hccl/base"],
    "openssl/": ["hccl/base"],
    "google/protobuf/": ["hccl/files/plugin"],
    "tensorflow/": ["python"],
    "torch/": ["python"],
}
SLEEPS = re.compile(r"\b(usleep|nanosleep|sleep_for|sleep_until|sched_yield|this_thread::yield|"
                    r"_mm_pause|__builtin_ia32_pause|SYS_futex)\b")
THREADS = re.compile(r"\bstd::thread\b(?!::(?:id|hardware_concurrency)\b)|\bstd::jthread\b|"
                     r"\b(?:pthread_create|pthread_sigmask|sigprocmask)\b")
STARTER = "hccl/base/thread.h"
LOCKS = re.compile(r"\bstd::(?:mutex|shared_mutex|recursive_mutex|timed_mutex|lock_guard|unique_lock|"
                   r"scoped_lock|shared_lock|condition_variable\w*)\b")
# These files may use locks directly: the lock itself, a lock that a model checker replaces, and locks of many readers.
LOCKERS = ("hccl/base/mutex.h", "hccl/base/atomics.h", "hccl/base/abort_flag.h", "hccl/acl/table.h",
           "transport/mpi/process.h", "transport/mpi/process.cc")
ENVIRONMENT = re.compile(r"\b(?:(?:secure_)?getenv|putenv|(?:un)?setenv|temp_directory_path)(?=\s*\()|\benviron\b")
# These files may read variables: the library's configuration, and the torch backend for torchrun's variables.
READ_ENVIRONMENT = ("hccl/base/config.cc", "hccl/base/config.h", "python/hccl/torch/src/communicator.cc")
# Calls that make a descriptor (a method of such a name has no "::" before it), and the types that own it at once.
DESCRIPTORS = re.compile(
    r"(?<![\w>:])(?:::(?:open|openat|creat|socket|accept|dup|pipe|fcntl(?=\(.*\bF_DUPFD))|"
    r"(?:::)?(?:accept4|memfd_create|eventfd|epoll_create1?|pipe2|dup[23]|socketpair|timerfd_create|signalfd|"
    r"inotify_init1?|pidfd_open|mkostemp|mkstemp|fopen|opendir|popen))(?=\()")
TAKEN = re.compile(r"\bFd(?:\s+\w+)?\($")
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)')
# A variable that lives as long as the program: static or thread_local, or at the left margin.
KEPT = re.compile(r"^\s*(?:inline\s+)?(?:static|thread_local)\s+(?:thread_local\s+|inline\s+)?"
                  r"(?!.*\bconst\b|.*\bconstexpr\b)[\w:<>,*&\s]*?\b(\w+)\s*(?:=|;|\{|\[)[^()]*")
AT_MARGIN = re.compile(r"^(?:inline\s+)?(?!(?:using|namespace|class|struct|enum|union|return|typedef|"
                       r"extern|template|friend|static|public|private|protected|goto|case|else|do)\b)"
                       r"(?!.*\bconst\b|.*\bconstexpr\b)[A-Za-z_][\w:]*(?:<[^()]*>)?[\s*&]+"
                       r"(\w+)(?:\[[^\]]*\])?\s*(?:=[^()]*|\{[^()]*\})?;\s*$")
LONGEST_FUNCTION = 60  # lines, in Python


def room_of(path):
    """Returns the room of a file, by its path from the root; None if no rule applies to the file."""
    if path in PUBLIC:
        return "public headers"
    if re.fullmatch(r"transport/[^/]+\.h", path):
        return TRANSPORT
    for room in sorted(ROOMS, key=len, reverse=True):
        if path.startswith(room + "/"):
            return room
    return None


def may_include(room, path):
    target = room_of(path)
    allowed = ROOMS[room]
    return target == room or target in allowed or path in allowed or (
        target == "public headers" and "public" in allowed) or (
        room == "transport" and target == TRANSPORT)


def without_comments(text):
    """Returns the text with blanks instead of comments and the contents of strings; lines keep their numbers."""
    def blank(match):
        found = match.group(0)
        if found.startswith('"'):
            return '"' + " " * (len(found) - 2) + '"'
        return re.sub(r"[^\n]", " ", found)
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', blank, text, flags=re.S)


def check_file(root, path):
    room = room_of(path)
    if room is None:
        return
    with open(os.path.join(root, path), encoding="utf-8") as file:
        text = file.read()
    plain = without_comments(text).split("\n")
    for number, line in enumerate(text.split("\n"), 1):
        where = f"{path}:{number}: "
        include = INCLUDE.match(line)
        if include and plain[number - 1].strip():
            quoted, library = include.groups()
            if quoted is not None:
                yield from (where + problem for problem in check_include(root, path, room, quoted))
            else:
                for prefix, rooms in LIBRARIES.items():
                    if library.startswith(prefix) and room not in rooms:
                        yield where + f"{room} may not include <{library}>"
            continue
        code = plain[number - 1]
        sleep = SLEEPS.search(code)
        if sleep and path not in ("hccl/base/atomics.h", "hccl/base/atomics.cc"):
            yield where + f"{sleep.group(1)}: everybody waits with hccl/base/waiter.h"
        thread = THREADS.search(code)
        if thread and path != STARTER and path.split("/")[0] not in ("examples", "benchmarks"):
            yield where + f"{thread.group(0)}: threads are started with hccl/base/thread.h"
        lock = LOCKS.search(code)
        if lock and path not in LOCKERS and path.split("/")[0] in ("hccl", "transport", "split"):
            yield where + f"{lock.group(0)}: locks are those of hccl/base/mutex.h"
        made = DESCRIPTORS.search(code)
        if made and path != "hccl/base/fd.cc" and path.split("/")[0] in ("hccl", "transport", "split"):
            name = made.group(0).lstrip(":")
            if not TAKEN.search(code[:made.start()]):
                yield where + f"{name}: descriptors are made by Fd of hccl/base/fd.h"
            elif "CLOEXEC" not in "".join(plain[number - 1:]).split(";")[0]:
                yield where + f"{name}: without CLOEXEC"
        # The thread-local locks of mutex.h; the processor's instruction set.
        if path in ("hccl/base/mutex.h", "hccl/base/vector_targets.cc"):
            continue
        variable = ENVIRONMENT.search(code)
        if variable and path not in READ_ENVIRONMENT:
            yield where + f"{variable.group(0)}: the environment is read in hccl/base/config.cc"
        if room in CORE or room.startswith(("transport", "split")):
            kept = KEPT.match(code) or AT_MARGIN.match(code)
            if kept:
                yield where + f"{kept.group(1)}: state of the process lies in hccl/api only"


def check_include(root, path, room, quoted):
    folder = os.path.dirname(path)
    beside = os.path.normpath(os.path.join(folder, quoted))
    if os.path.exists(os.path.join(root, beside)):
        target = beside
    elif quoted.endswith(".pb.h") and room == "hccl/files/plugin":  # made by the build
        return
    elif os.path.exists(os.path.join(root, quoted)):
        target = quoted
    else:
        yield f'"{quoted}" is not in the project'
        return
    if not may_include(room, target):
        yield f"{room} may not include {target}"


def check_functions(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        tree = ast.parse(file.read(), path)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = node.end_lineno - node.lineno + 1
            if lines > LONGEST_FUNCTION:
                yield f"{path}:{node.lineno}: {node.name} has {lines} lines, {LONGEST_FUNCTION} are allowed"


def imports_of(path):
    """Yields the modules that a file imports, also inside functions."""
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read(), path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def check_circles(root):
    """Finds modules that import each other. A package's __init__ and its modules may do so."""
    graph = {}
    for folder, _, names in os.walk(os.path.join(root, "python")):
        for name in names:
            if name.endswith(".py") and name != "__init__.py":
                path = os.path.join(folder, name)
                module = os.path.relpath(path, os.path.join(root, "python"))[:-3].replace(os.sep, ".")
                graph[module.removeprefix("ascend.")] = set(imports_of(path))
    before = 0
    while len(graph) != before:  # removes modules that import no other, or that no other imports
        before = len(graph)
        graph = {module: targets & graph.keys() for module, targets in graph.items()}
        imported = set().union(*graph.values())
        graph = {module: to for module, to in graph.items() if to and module in imported}
    if graph:
        yield "python: these modules import each other: " + ", ".join(sorted(graph))


def check(root):
    found = list(check_circles(root))
    for top in ("hccl", "transport", "split", "python", "examples", "benchmarks", "scripts"):
        for folder, folders, names in os.walk(os.path.join(root, top)):
            folders[:] = sorted(f for f in folders if not f.startswith((".", "build")))
            for name in sorted(names):
                path = os.path.relpath(os.path.join(folder, name), root)
                if name.endswith((".h", ".cc", ".c")):
                    found += check_file(root, path)
                elif name.endswith(".py"):
                    found += check_functions(root, path)
    return found


class TheProject(unittest.TestCase):
    root = None

    def test_has_no_violations(self):
        self.assertEqual(check(self.root), [], "\n" + "\n".join(check(self.root)))

    def test_has_every_room(self):
        for room in ROOMS:
            folder = {"public headers": "hccl", TRANSPORT: "transport"}
            self.assertTrue(os.path.isdir(os.path.join(self.root, folder.get(room, room))), room)


class PlantedViolations(unittest.TestCase):
    """The check finds each line that breaks a rule, at its place, but not the allowed variant of the line."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        files = list(PUBLIC) + ["transport/shm/shm.h", "split/trace.h", "hccl/select/costs.h"]
        files += ["hccl/base/thread.h", "hccl/base/vector_targets.h"]
        files += [f"{room}/a.h" for room in ROOMS
                  if room not in ("public headers", TRANSPORT)]
        for name in files:
            cls.write(name, "")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def write(cls, name, content):
        path = os.path.join(cls.folder.name, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
        return path

    def findings(self, path, text):
        planted = self.write(path, text)
        try:
            return check(self.folder.name)
        finally:
            os.remove(planted)

    def test_includes(self):
        allowed = {
            "hccl/base": [],
            "hccl/memory": ["hccl/base"],
            "hccl/acl": ["hccl/base", "hccl/memory", "hccl/acl/acl_rt.h"],
            "hccl/kernels": ["hccl/base"],
            "hccl/optim": ["hccl/base/vector_targets.h", "hccl/kernels", "hccl/hccl_optim.h"],
            "hccl/schedule": ["hccl/base"],
            "transport": ["hccl/base", "transport/shm/shm.h"],
            "transport/tcp": ["hccl/base", "transport"],
            "hccl/exec": ["hccl/base", "hccl/kernels", "hccl/schedule", "transport"],
            "hccl/join": ["hccl/base", "transport"],
            "hccl/control": ["hccl/base"],
            "hccl/core": ["hccl/base", "hccl/kernels", "hccl/schedule", "transport", "hccl/exec",
                          "hccl/join"],
            "hccl/files": ["hccl/base"],
            "hccl/files/plugin": ["hccl/files", "split/trace.h"],
            "split": ["hccl/base", "hccl/files"],
            "split/engine": ["hccl/core", "split"],
            "hccl/api": ["hccl/core", "split", "split/engine", "hccl/acl", "hccl/hccl.h"],
            "python": ["hccl/hccl.h"],
            "examples": ["hccl/hcom.h"],
            "benchmarks/perf": ["hccl/hccl_fusion.h"],
        }
        forbidden = {
            "hccl/base": ["hccl/kernels", "hccl/core", "transport", "hccl/hccl.h"],
            "hccl/memory": ["hccl/acl", "hccl/core", "hccl/hccl_types.h"],
            "hccl/acl": ["hccl/core", "hccl/api", "transport", "split"],
            "hccl/kernels": ["hccl/schedule", "transport", "hccl/core"],
            "hccl/optim": ["hccl/base", "hccl/core", "hccl/hccl.h"],
            "hccl/schedule": ["hccl/kernels", "transport", "hccl/exec"],
            "transport": ["hccl/kernels", "hccl/core"],
            "transport/tcp": ["transport/shm/shm.h", "hccl/exec", "hccl/core"],
            "hccl/exec": ["hccl/core", "transport/shm/shm.h", "split"],
            "hccl/join": ["hccl/core", "hccl/exec", "hccl/memory", "transport/tcp"],
            "hccl/control": ["hccl/join", "transport", "hccl/core"],
            "hccl/core": ["hccl/api", "split", "transport/tcp", "hccl/hccl_comm.h"],
            "hccl/files": ["split", "hccl/core", "hccl/files/plugin"],
            "hccl/files/plugin": ["split/engine", "hccl/api"],
            "split": ["hccl/core", "split/engine", "hccl/kernels", "hccl/files/plugin"],
            "hccl/api": ["transport/tcp", "python"],
            "python": ["hccl/base", "hccl/core", "examples"],
            "examples": ["hccl/api", "split"],
            "benchmarks/perf": ["hccl/base", "hccl/core"],
        }
        for table, bad in ((allowed, False), (forbidden, True)):
            for room, targets in table.items():
                for target in targets:
                    header = target if target.endswith(".h") else target + "/a.h"
                    path = room + "/planted.cc"
                    found = self.findings(path, f'// One\n#include "{header}"\n')
                    expected = [f"{path}:2: {room} may not include {header}"] if bad else []
                    self.assertEqual(found, expected, f"{room} -> {target}")
        self.assertEqual(self.findings("transport/planted.h", '#include "transport/shm/shm.h"\n'),
                         ["transport/planted.h:1: transport/*.h may not include transport/shm/shm.h"])
        self.assertEqual(self.findings("hccl/base/b.cc", '#include "base/nowhere.h"\n'),
                         ['hccl/base/b.cc:1: "base/nowhere.h" is not in the project'])
        self.assertEqual(self.findings("hccl/core/b.cc", '#include <mpi.h>\n'),
                         ["hccl/core/b.cc:1: hccl/core may not include <mpi.h>"])
        self.assertEqual(self.findings("transport/mpi/b.cc", '#include <mpi.h>\n'), [])
        self.assertEqual(self.findings("split/b.cc", '#include <google/protobuf/message.h>\n'),
                         ["split/b.cc:1: split may not include <google/protobuf/message.h>"])
        self.assertEqual(self.findings("hccl/base/b.cc", '// #include "hccl/core/a.h"\n'), [])

    def test_sleeps(self):
        for line, word in (("usleep(1);", "usleep"), ("::nanosleep(&t, nullptr);", "nanosleep"),
                           ("std::this_thread::sleep_for(1s);", "sleep_for"),
                           ("std::this_thread::yield();", "this_thread::yield"),
                           ("_mm_pause();", "_mm_pause"), ("syscall(SYS_futex, p);", "SYS_futex")):
            text = "void f() {\n  " + line + "\n}\n"
            self.assertEqual(self.findings("hccl/exec/b.cc", text),
                             [f"hccl/exec/b.cc:2: {word}: everybody waits with hccl/base/waiter.h"])
            self.assertEqual(self.findings("hccl/base/atomics.cc", text), [])
            self.assertEqual(self.findings("hccl/exec/b.cc", "// " + line + "\n"), [])

    def test_threads(self):
        for line, word in (("std::thread t(f);", "std::thread"), ("std::jthread t(f);", "std::jthread"),
                           ("std::vector<std::thread> all;", "std::thread"),
                           ("pthread_create(&t, nullptr, f, nullptr);", "pthread_create"),
                           ("pthread_sigmask(SIG_SETMASK, &all, &before);", "pthread_sigmask")):
            text = "void f() {\n  " + line + "\n}\n"
            for folder in ("hccl/api", "transport/tcp", "split", "python"):
                self.assertEqual(self.findings(folder + "/b.cc", text),
                                 [f"{folder}/b.cc:2: {word}: threads are started with hccl/base/thread.h"])
            self.write("hccl/base/thread.h", text)
            self.assertEqual(self.findings("examples/c.cc", ""), [])
            self.write("hccl/base/thread.h", "")
            self.assertEqual(self.findings("examples/b.cc", text), [])
        for line in ("std::thread::id runner;", "std::thread::hardware_concurrency();", "// std::thread"):
            self.assertEqual(self.findings("hccl/api/b.cc", "void f() {\n  " + line + "\n}\n"), [])

    def test_locks(self):
        for line, word in (("std::mutex m;", "std::mutex"), ("const std::lock_guard lock(m);", "std::lock_guard"),
                           ("std::condition_variable_any c;", "std::condition_variable_any")):
            text = "void f() {\n  " + line + "\n}\n"
            for folder, bad in (("hccl/api", True), ("transport/tcp", True), ("split", True), ("python", False)):
                expected = [f"{folder}/b.cc:2: {word}: locks are those of hccl/base/mutex.h"]
                self.assertEqual(self.findings(folder + "/b.cc", text), expected if bad else [])
            self.assertEqual(self.findings("hccl/base/mutex.h", text), [])

    def test_environment(self):
        for line, word in (('std::getenv("A");', "getenv"), ('::secure_getenv("A");', "secure_getenv"),
                           ('::setenv("A", "b", 1);', "setenv"), ("char** all = environ;", "environ"),
                           ("std::filesystem::temp_directory_path();", "temp_directory_path")):
            text = "void f() {\n  " + line + "\n}\n"
            self.assertEqual(self.findings("transport/tcp/b.cc", text),
                             [f"transport/tcp/b.cc:2: {word}: the environment is read in hccl/base/config.cc"])
            self.assertEqual(self.findings("hccl/base/config.cc", text), [])
        self.assertEqual(self.findings("hccl/join/b.cc", 'const char* at = environment("RANK");\n'), [])

    def test_descriptors(self):
        for call in ("::open(p, O_RDONLY | O_CLOEXEC)", "::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)",
                     "memfd_create(n, MFD_CLOEXEC)", "::epoll_create1(EPOLL_CLOEXEC)",
                     "::fcntl(fd, F_DUPFD_CLOEXEC, 3)"):
            name = call.strip(":").split("(")[0]
            for folder in ("hccl/core", "transport/tcp", "split"):
                message = f"{folder}/b.cc:2: {name}: descriptors are made by Fd of hccl/base/fd.h"
                for line in (f"int fd = {call};", f"if ({call} < 0) return;", f"f({call});"):
                    self.assertEqual(self.findings(folder + "/b.cc", f"void f() {{\n  {line}\n}}\n"), [message], line)
                for line in (f"Fd fd({call});", f"return Fd({call});", f"// {call}"):
                    self.assertEqual(self.findings(folder + "/b.cc", f"void f() {{\n  {line}\n}}\n"), [], line)
            self.assertEqual(self.findings("hccl/base/fd.cc", f"void f() {{\n  int fd = {call};\n}}\n"), [])
        self.assertEqual(self.findings("hccl/core/b.cc", "Fd fd(::open(p,\n    O_RDONLY));\n"),
                         ["hccl/core/b.cc:1: open: without CLOEXEC"])
        for line in ("mesh.open(args);", "Status open();", "tcp::open(args);", "::fcntl(fd, F_GETFD);"):
            self.assertEqual(self.findings("hccl/core/b.cc", f"void f() {{\n  {line}\n}}\n"), [], line)

    def test_state(self):
        for line, name in (("int counter = 0;", "counter"), ("Mutex lock;", "lock"),
                           ("std::vector<int> list{1, 2};", "list"), ("bool* flag;", "flag"),
                           ("inline int shared = 1;", "shared"), ("char buffer[64];", "buffer"),
                           ("static int calls = 0;", "calls"), ("  static Pool pool;", "pool"),
                           ("thread_local std::string text;", "text"),
                           ("  static thread_local int depth = 0;", "depth")):
            message = f"hccl/core/b.cc:1: {name}: state of the process lies in hccl/api only"
            self.assertEqual(self.findings("hccl/core/b.cc", line + "\n"), [message], line)
            self.assertEqual(self.findings("hccl/api/b.cc", line + "\n"), [])
        for line in ("constexpr int kMost = 3;", "static const std::string none;", "class Later;",
                     "using A = B;", "int sum(int a, int b);", "static int half(int a) {", "}  // n",
                     "  int local = 0;", "inline constexpr bool kOn = true;", "enum class E : int;",
                     "static_assert(true);", "  static Result<int> make(int a);",
                     "namespace a = b::c;", "const char* const kWords[] = {", "struct Point;"):
            self.assertEqual(self.findings("hccl/core/b.cc", line + "\n"), [], line)

    def test_functions(self):
        function = "async def long():\n" + "    pass\n" * 59
        self.assertEqual(self.findings("python/b.py", "class A:\n    pass\n\n" + function), [])
        self.assertEqual(self.findings("scripts/b.py", "\n" + function + "    pass\n"),
                         ["scripts/b.py:2: long has 61 lines, 60 are allowed"])

    def test_circles(self):
        planted = [self.write("python/p/b.py", "import p.c\n"), self.write("python/p/d.py", "import p.b\n")]
        try:
            self.assertEqual(self.findings("python/p/c.py", "import os\n"), [])
            self.assertEqual(self.findings("python/ascend/p/c.py", "def f():\n    from p import b\n"),
                             ["python: these modules import each other: p.b, p.c"])
        finally:
            for path in planted:
                os.remove(path)


if __name__ == "__main__":
    TheProject.root = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
