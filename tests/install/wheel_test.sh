#!/usr/bin/env bash
# Installs a wheel of the folder dist into a bare Debian or Ubuntu that has Python and its venv, but no compiler and no
# headers. Two ranks then run README's Python program and train on digits. Ascend's names come with the extra "ascend"
# only. All wheels of hccl in dist must have the tag manylinux_2_34 and at most 8 MB. Needs root, debootstrap and the
# distribution's mirror.
#   tests/install/wheel_test.sh [SUITE...]     default: bookworm (Python 3.11), noble (Ubuntu 24.04, Python 3.12)
# With HCCL_TEST_TORCH=torch==2.13.0 pip first installs this PyTorch, and two ranks run README's program for it.
set -euo pipefail
cd "$(dirname "$0")/../.."
suites=("$@")
((${#suites[@]})) || suites=(bookworm noble)
unset PYTHONUNBUFFERED  # it tears the lines of ranks that share a file
roots=$(mktemp -d)
trap 'umount -q "$roots"/*/proc "$roots"/*/dev/shm || true; rm -rf --one-file-system "$roots"' EXIT

for wheel in dist/hccl-*.whl; do
  if [[ $wheel != *-manylinux_2_34_* ]] || (($(stat -c %s "$wheel") > 8000000)); then
    echo "wheel: $wheel: no manylinux_2_34, or more than 8 MB" >&2
    exit 1
  fi
done
for suite in "${suites[@]}"; do
  root=$roots/$suite more=()
  [[ $suite == noble ]] && more=(--no-check-gpg --components=main,universe)
  if [[ ! -e /usr/share/debootstrap/scripts/$suite ]]; then  # all Ubuntu suites use the same script
    cp -R /usr/share/debootstrap "$roots/debootstrap"
    ln -s gutsy "$roots/debootstrap/scripts/$suite"
    export DEBOOTSTRAP_DIR=$roots/debootstrap
  fi
  debootstrap --variant=minbase --include=python3,python3-venv "${more[@]}" "$suite" "$root" >"$roots/log" ||
    { tail "$roots/log" && exit 1; }
  mount -t proc proc "$root/proc"
  mkdir -p "$root/dev/shm" "$root/wheels"
  mount -t tmpfs tmpfs "$root/dev/shm"
  cp dist/*.whl "$root/wheels"
  version=$(chroot "$root" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  .venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --python-version "$version" --dest "$root/wheels" numpy
  if [[ ${HCCL_TEST_TORCH-} ]]; then
    .venv/bin/python -m pip download --quiet --disable-pip-version-check --only-binary :all: \
      --python-version "$version" --dest "$root/wheels" "$HCCL_TEST_TORCH"
    echo "127.0.0.1 localhost $(hostname)" >"$root/etc/hosts"  # as in containers
    awk '/^```python title="reduce.py"/ { on = 1; next } /^```/ { on = 0 } on' README.md >"$root/reduce.py"
  fi
  awk '/^import hccl/, /destroy/' README.md >"$root/first.py"
  cp -R examples/train_digits.py examples/digits_options.py examples/data "$root"
  chroot "$root" bash -e <<'END'
python3 -m venv /venv
if [[ -e /reduce.py ]]; then /venv/bin/pip install --quiet --no-index --find-links /wheels torch; fi
begin=$SECONDS
/venv/bin/pip install --quiet --no-index --find-links /wheels hccl
export WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29555
for rank in 0 1; do RANK=$rank LOCAL_RANK=$rank /venv/bin/python /first.py >/output$rank & done
wait
[[ $(cat /output0 /output1) == $'rank 0 of 2: the sum is 1\nrank 1 of 2: the sum is 1' ]] || { cat /output?; exit 1; }
for rank in 0 1; do
  RANK=$rank LOCAL_RANK=$rank /venv/bin/python /train_digits.py --epochs 5 >/output$rank &
done
wait
grep -q '^epoch 5: .* test accuracy 0.9' /output0 && grep -q 'identical on all ranks: yes' /output0 || { cat /output?; exit 1; }
if [[ -e /reduce.py ]]; then
  PATH=/venv/bin:$PATH torchrun --nproc-per-node 2 /reduce.py >/output
  [[ $(grep -c '^rank [01]: \[1.0, 1.0, 1.0, 1.0\]$' /output) == 2 ]] || { cat /output; exit 1; }
fi
/venv/bin/python -m hccl.info >/info
grep -q 'cannot be used: libfabric.so.1' /info || { cat /info; exit 1; }
/venv/bin/hccl_perf --help >/dev/null
/venv/bin/hccl-plan --help >/dev/null
seconds=$((SECONDS - begin))
if ls /venv/lib/python3*/site-packages | grep -iE 'ascend|npu|apex' >&2; then exit 1; fi
/venv/bin/pip install --quiet --no-index --find-links /wheels 'hccl[ascend]'
/venv/bin/python -c 'from importlib.util import find_spec; exit(not (find_spec("npu_device") and find_spec("npu_bridge")))'
echo "installed and run in $seconds s"
END
  echo "wheel: $suite, Python $version: right"
done
