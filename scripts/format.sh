#!/usr/bin/env bash
# Checks the form of all C and C++ files; --fix rewrites them. clang-format leaves the text of comments alone (it would
# join lists and tables), so this script rejects comments and strings that make a line longer than 100 characters. Names
# of files in comments and READMEs must exist. Besides its tables a room's README has at most 80 lines of 120 characters.
# Files over 400 lines outside tests are listed, and fail with --strict.
#   scripts/format.sh [--fix] [--strict]
set -euo pipefail
source "$(dirname "$0")/common.sh"
check=(--dry-run -Werror) strict=0
for option in "$@"; do
  case $option in
    --fix) check=(-i) ;;
    --strict) strict=1 ;;
    *) echo "format.sh: unknown option \"$option\"" >&2 && exit 2 ;;
  esac
done

files() { git ls-files --cached --others --exclude-standard -z "$@"; }
files '*.h' '*.cc' '*.c' | xargs -0 -n 64 -P "$jobs" .venv/bin/clang-format "${check[@]}"
wide=$(files '*.h' '*.cc' '*.c' | LC_ALL=C.UTF-8 xargs -0 grep -nE '^.{101,}' || true)
if [[ $wide ]]; then
  echo "format: more than 100 characters:" && echo "$wide"
  exit 1
fi
wide=$(files README.md '*/README.md' | LC_ALL=C.UTF-8 xargs -0 grep -nE '^[^|].{120,}' || true)
if [[ $wide ]]; then
  echo "format: more than 120 characters:" && echo "$wide"
  exit 1
fi
scripts/names.py
readmes=$(files '*/README.md' | xargs -0 grep -cv '^|' | awk -F: '$2 > 80')
if [[ $readmes ]]; then
  echo "format: more than 80 lines besides tables:" && echo "$readmes"
  exit 1
fi
long=$(files '*.h' '*.cc' '*.c' '*.py' '*.sh' ':!tests/' | xargs -0 wc -l | awk '$1 > 400 && $2 != "total"')
if [[ $long ]]; then
  echo "format: more than 400 lines:" && echo "$long"
  ((strict == 0))
fi
