"""Prints how programs in C and C++ are built with this package's library:

cc first.c $(python -m hccl.config --cflags --libs) -o first
cmake -DCMAKE_PREFIX_PATH="$(python -m hccl.config --cmake-prefix)" ...
                                                then find_package(hccl) and hccl::hccl

Flags with a space are quoted for the shell. If the package's path has a space, use eval:
eval "cc first.c $(python -m hccl.config --cflags --libs) -o first"
"""

from __future__ import annotations

import argparse
import shlex

from hccl._build import PACKAGE


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m hccl.config", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cflags", action="store_true", help="flags of the compiler")
    parser.add_argument("--libs", action="store_true", help="flags of the linker, with the library's place")
    parser.add_argument("--cmake-prefix", action="store_true", help="the folder for CMAKE_PREFIX_PATH")
    chosen = parser.parse_args()
    words: list[str] = []
    if chosen.cflags:
        words += [f"-I{PACKAGE / 'include'}"]
    if chosen.libs:
        library = next(PACKAGE.glob("libhccl.so.*"))
        words += [f"-L{PACKAGE}", f"-l:{library.name}", f"-Wl,-rpath,{PACKAGE}"]
    words = [shlex.quote(word) for word in words]
    if chosen.cmake_prefix:  # not quoted: "$(...)" passes it as one word
        words += [str(PACKAGE / "development")]
    if not words:
        parser.error("nothing is asked for")
    print(" ".join(words))


if __name__ == "__main__":
    main()
