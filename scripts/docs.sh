#!/usr/bin/env bash
# Builds the site into build/site. It can be read without a network: open build/site/index.html. Fails on a link to a
# file or a heading that does not exist. --serve shows the site at 127.0.0.1:8000, and builds it again after each
# change.
#   scripts/docs.sh [--serve]
set -euo pipefail
source "$(dirname "$0")/common.sh"

venv=.venv-docs
make_venv $venv scripts/requirements-docs.txt
export NO_MKDOCS_2_WARNING=1
if [[ ${1-} == --serve ]]; then exec $venv/bin/mkdocs serve; fi
$venv/bin/mkdocs build --strict --clean --site-dir build/site
# Nothing that a page loads comes from the network.
if grep -rnoE '<(link|script|img)[^>]+(href|src)="?(https?:)?//[^" >]+' build/site --include='*.html'; then
  echo "docs: the pages above load something from the network" >&2
  exit 1
fi
echo "docs: $(find build/site -name '*.html' | wc -l) pages in build/site"
