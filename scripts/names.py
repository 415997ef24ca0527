#!/usr/bin/env python3
"""Checks that the files and folders which comments and READMEs name exist.
    scripts/names.py [SOURCE]
A name is a text that looks like a file or a folder of this tree: "waiter.h", "hccl/local/",
"abort_test". It may begin at the root, or at the folder of the file that names it or any folder
above; a name without a folder may lie anywhere. A page may also name the files that it contains:
blocks of code with a title."""

import os
import re
import subprocess
import sys

# Names that need not be in the tree: files of programs that use the library, of other libraries, and files that a run
# makes.
OTHERS = set("""first.c first.py program.py script.py trace.json plan.json raw.json split.json x.json setup.py
distributed_test.py highway.h mpi.h plan.proto split/plan.h plugin/plan.cc plugin/plan.proto a.b.c NAME.pml _test.cc
hccl.files.proto _built/ hccl_ascend/ proc/ DIR/set_env.sh""".split())
ENDS = r"(?:cc|h|c|py|sh|md|txt|cmake|json|proto|pml|map|yml|toml|in)"
FILE = re.compile(rf"(?<![\w/.$<{{*-])((?:\.\.?/)*(?:[\w.+-]+/)*[\w+-]+(?:\.[\w+-]+)*\.{ENDS})\b(?![\w/(*-])")
FOLDER = re.compile(r"(?<![\w/.$<{}~*:-])((?:\.\.?/)*(?:[\w+-]+/)+)(?![\w{<*$])")
LINK = re.compile(r"\]\(([^)#:\s]+)\)")
PLAIN = re.compile(r"`((?:\.\.?/)*[\w-]+(?:/[\w-]+)+)`")
TITLE = re.compile(r'^```\w+ title="([\w.]+)"', re.M)
TEST = re.compile(r"(?<![\w/.${<>*:-])([a-z]\w*_test)\b(?![\w.(/*-])")
C_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.S)
SHELL_COMMENT = re.compile(r'(?:^|(?<=\s))#(?!\s*include\b).*|^[ ]*"""[^"]*"""', re.M)


def tracked(root):
    command = ["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    return [path for path in listed if path and os.path.isfile(os.path.join(root, path))]


class Tree:
    def __init__(self, root):
        self.root, self.files = root, tracked(root)
        self.folders = {path[:at] for path in self.files for at in range(len(path)) if path[at] == "/"}
        known = [path for path in self.files if "/corpus/" not in path]
        self.file_names = {os.path.basename(each) for path in known for each in (path, path.removesuffix(".in"))}
        self.folder_names = {os.path.basename(path) for path in self.folders}
        cmake = "".join(self.read(path) for path in self.files if path.endswith("CMakeLists.txt"))
        self.tests = set(re.findall(r"\w+_test\b", cmake)) | {os.path.splitext(name)[0] for name in self.file_names}

    def read(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as file:
            return file.read()

    def has(self, path, name):
        """Returns whether `name`, which occurs in the file `path`, exists."""
        if name in OTHERS or name.startswith("build/"):
            return True
        bare = name.rstrip("/")
        all_of, names = (self.folders, self.folder_names) if name.endswith("/") else (self.files, self.file_names)
        if "/" not in bare:
            return bare in names
        if bare.startswith("."):
            return os.path.normpath(os.path.join(os.path.dirname(path), bare)) in all_of
        return any(("/" + each).endswith("/" + bare) for each in all_of)


def comments(path, text):
    """Yields (offset, text) of each comment of a file; a README counts as one comment."""
    if path.endswith(".md"):
        yield 0, text
    elif path.endswith((".h", ".cc", ".c", ".proto")):
        yield from ((m.start(), m[0]) for m in C_COMMENT.finditer(text) if not m[0].startswith('"'))
    elif path.endswith((".py", ".sh", ".cmake", "CMakeLists.txt", "Makefile")):
        yield from ((m.start(), m[0]) for m in SHELL_COMMENT.finditer(text))


def named(tree, path, text):
    """Yields (offset, name, whether it exists) for each name in a comment or README."""
    own = set(TITLE.findall(text)) if path.endswith(".md") else set()
    for form in (FILE, FOLDER):
        yield from ((m.start(), m[1], m[1] in own or tree.has(path, m[1])) for m in form.finditer(text))
    yield from ((m.start(), m[1], m[1] in tree.tests) for m in TEST.finditer(text))
    if path.endswith(".md"):
        here = os.path.join(tree.root, os.path.dirname(path))
        yield from ((m.start(), m[1], os.path.exists(os.path.join(here, m[1]))) for m in LINK.finditer(text))
        for m in PLAIN.finditer(text):
            yield m.start(), m[1], any(tree.has(path, m[1] + end) for end in ("", "/", ".h", ".cc", ".py"))


def check(tree):
    for path in tree.files:
        if not path.startswith("benchmarks/results/"):
            text = tree.read(path)
            for offset, comment in comments(path, text):
                for at, name, exists in named(tree, path, comment):
                    if not exists:
                        line = text.count("\n", 0, offset + at) + 1
                        yield f"{path}:{line}: names {name}, which is not in the tree"


if __name__ == "__main__":
    problems = list(check(Tree(sys.argv[1] if len(sys.argv) > 1 else ".")))
    print("\n".join(problems), end="\n" if problems else "")
    sys.exit(bool(problems))
