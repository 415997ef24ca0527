#!/bin/sh
# foreign_protobuf.sh LIBPROTOBUF OUT: writes the C source of a library that exports every function of Protobuf, as
# frameworks do. Each of them ends the process: the caller was bound to the wrong Protobuf.
set -e
cat >"$2" <<'END'
#include <unistd.h>
void foreign_protobuf(void);
void foreign_protobuf(void) {
  static const char text[] = "called a foreign Protobuf\n";
  _exit(write(2, text, sizeof text - 1) > 0 ? 99 : 98);
}
END
nm -D --defined-only "$1" | awk '$2 ~ /^[TW]$/ && $3 ~ /6google8protobuf/ {
  sub(/@.*/, "", $3)
  printf "__asm__(\".globl %s\\n.set %s, foreign_protobuf\\n.type %s, %%function\");\n", $3, $3, $3
}' >>"$2"
[ "$(wc -l <"$2")" -gt 1000 ]
