#!/usr/bin/env bash
# Checks the code, builds, and runs every test; ends with the time of each step.
#   scripts/test.sh [step...]     default: format tidy release python jax torch tensorflow asan tsan
#   scripts/test.sh quick         builds, and runs the tests with the label quick: for each change, two minutes at most
#   scripts/test.sh core          all but Python, JAX, PyTorch and TensorFlow
#   scripts/test.sh torch215      the main tests of PyTorch, with 2.15
#   scripts/test.sh long          what takes longer than a gate may, and torch215; by hand
# Steps of C++ (tidy, release, asan, tsan) and steps of Python (python, jax, torch, tensorflow) run side by side.
set -euo pipefail
source "$(dirname "$0")/common.sh"
steps=()
for step in "${@:-all}"; do
  case $step in
    all) steps+=(format tidy release python jax torch tensorflow asan tsan) ;;
    core) steps+=(format tidy release asan tsan) ;;
    quick | format | tidy | release | python | jax | torch | torch215 | tensorflow | asan | tsan | long) steps+=("$step") ;;
    *)
      echo "test.sh: unknown step \"$step\": quick, core, format, tidy, release, python, jax, torch, torch215,"\
        "tensorflow, asan, tsan or long" >&2
      exit 2
      ;;
  esac
done

begin=$SECONDS since=$SECONDS now='' lanes=()
times=$(mktemp)
# took NAME: counts the time since the last call as that of step NAME.
took() {
  local line
  line=$(printf '%-22s %3d:%02d' "$1" $(((SECONDS - since) / 60)) $(((SECONDS - since) % 60)))
  echo "$line" >>"$times"
  echo "== $line"
  since=$SECONDS
}
# ended SECONDS PROCESS...: waits until the processes have ended, and fails after SECONDS; a negative number is a group.
ended() {
  local until=$((SECONDS + $1)) process
  for process in "${@:2}"; do
    while kill -0 -- "$process" 2>/dev/null; do
      if ((SECONDS > until)); then return 1; fi
      sleep 0.1
    done
  done
}
summary() {
  local status=$?
  trap '' TERM
  jobs -p | xargs -r kill 2>/dev/null || true  # tests in the background, which do not get Ctrl-C
  # The lanes do not get Ctrl-C either. They must end before the table is printed.
  local groups=("${lanes[@]/#/-}")
  if ((${#lanes[@]})); then
    kill -- "${groups[@]}" 2>/dev/null || true
    ended 20 "${groups[@]}" || kill -KILL -- "${groups[@]}" || true
  fi
  if ((status)) && [[ $now ]]; then took "$now FAILED"; fi
  since=$begin
  echo && echo "== minutes, on $(nproc) cores"
  took total >/dev/null
  sed 's/^/   /' "$times" && rm "$times"
  exit "$status"
}
trap summary EXIT

# One build serves tidy, release and python: the dev preset is the release preset with warnings as errors.
build() {
  if [[ ${built-} == "$1" ]]; then return; fi
  local outer=$now
  now="build $1"
  configure_and_build "$@"
  built=$1 && took "$now" && now=$outer
}

run_ctest() {
  local preset=$1
  shift
  echo
  echo "== $preset: $("$cmake" --version | head -n 1), $(nproc) cores =="
  ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j 2 "$@"
}

asan_too=''
if [[ " ${steps[*]} " == *" asan "* ]]; then asan_too=yes; fi

# Tests make ranks fail, and these ranks write their flight records here. The files are kept until the next run.
export HCCL_FLIGHT_RECORDER_DIR=$PWD/build/flight
rm -rf "$HCCL_FLIGHT_RECORDER_DIR" && mkdir -p "$HCCL_FLIGHT_RECORDER_DIR"

step() {
  case $1 in
    quick)
      build dev
      run_ctest dev -L '^quick$'
      ;;
    format)
      scripts/format.sh
      ;;
    tidy)
      build dev
      scripts/tidy.py build/dev
      ;;
    release)
      build dev
      run_ctest dev -LE "^(serial${asan_too:+|once})\$"
      ;;
    python)
      build dev
      HCCL_BUILD_DIR=build/dev scripts/python.sh
      echo
      echo "== python =="
      .venv/bin/mypy --cache-dir build/mypy -p hccl
      .venv/bin/mypy --cache-dir build/mypy python/_hccl_torch.py
      .venv/bin/mypy --cache-dir build/mypy tests/python/typed_program.py
      HCCL_BUILD_DIR=build/dev .venv/bin/python -m pytest -q tests/python
      HCCL_BUILD_DIR=build/dev .venv/bin/python -m pytest -q tests/docs
      ;;
    jax)
      build dev
      HCCL_BUILD_DIR=build/dev scripts/jax.sh
      echo
      echo "== jax =="
      .venv-jax/bin/python -m pytest -q tests/jax
      HCCL_BUILD_DIR=build/dev .venv-jax/bin/python -m pytest -q tests/docs
      ;;
    torch)
      build dev
      HCCL_BUILD_DIR=build/dev scripts/torch.sh
      echo
      echo "== torch =="
      .venv/bin/mypy --python-executable .venv-torch/bin/python --cache-dir build/mypy tests/torch/typed_program.py
      .venv-torch/bin/python -m pytest -q tests/torch
      HCCL_BUILD_DIR=build/dev .venv-torch/bin/python -m pytest -q tests/docs
      ;;
    torch215)
      build dev
      HCCL_BUILD_DIR=build/dev scripts/torch.sh 215
      echo
      echo "== torch 2.15 =="
      .venv-torch215/bin/python -m pytest -q \
        tests/torch/test_{import,ready,flight,shrink,reconfigure,groups,python_form}.py \
        tests/torch/test_examples.py::test_digits_give_the_same_weights_on_any_number_of_ranks
      ;;
    tensorflow)
      build dev
      HCCL_BUILD_DIR=build/dev scripts/torch.sh  # PyTorch beside TensorFlow, in a test
      HCCL_BUILD_DIR=build/dev scripts/tensorflow.sh
      # Side by side: half of the tests start one process at a time, and leave a core idle.
      pids=() failed=0
      for version in 215 221; do
        .venv-tf$version/bin/python -m pytest -q tests/tensorflow >build/tensorflow-$version.log 2>&1 &
        pids+=($!)
      done
      for version in 215 221; do
        wait "${pids[0]}" || failed=1
        pids=("${pids[@]:1}")
        echo
        echo "== tensorflow $version =="
        cat build/tensorflow-$version.log
      done
      ((failed == 0))
      HCCL_BUILD_DIR=build/dev .venv-tf221/bin/python -m pytest -q tests/docs
      ;;
    asan)
      build asan
      # Leaves out tests that mpirun starts, that depend on the amount of memory or the allocator, or that take too long.
      run_ctest asan -LE '^(mpi|no_asan|serial)$'
      ;;
    serial)
      # These tests check time limits that the library promises, so nothing else runs.
      if [[ " ${steps[*]} " == *" release "* ]]; then run_ctest dev -L '^serial$' ${asan_too:+-LE '^once$'}; fi
      if [[ $asan_too ]]; then run_ctest asan -L '^serial$' -LE '^(mpi|no_asan)$'; fi
      ;;
    tsan)
      build tsan thread_tests
      # The state of the process is never destroyed, so the control thread is not always joined.
      export TSAN_OPTIONS=report_thread_leaks=0
      run_ctest tsan -L '^threads$'
      ;;
    long)
      # Every test three times, 1,000 starts by each launcher, many simulated worlds, models with wider bounds and all
      # mutants, half an hour of churn; about 8,700 jobs, each with one failing allocation, a different one in each job
      # (HCCL_TEST_FAILURES=0: all 28,000, in 80 minutes); two installations at once, PyTorch's tests with more ranks,
      # Ray, vLLM, every parser under libFuzzer, the path-sensitive analysis of the library, the kernels for Arm; a wheel
      # and the packages in bare systems, the site.
      build dev
      run_ctest dev --repeat until-fail:3
      HCCL_TEST_STARTS=1000 python3 tests/join/launched_test.py build/dev/tests/launched_rank mpirun mpiexec.hydra
      build/dev/tests/control_simulation_test --seeds 10000
      build/dev/tests/seek_simulation_test --seeds 100000
      HCCL_TEST_ROUNDS=560 build/dev/tests/transport_tests --gtest_filter=TcpLinks.AnyFirstUsersConnect
      HCCL_TEST_MODELS=long build/dev/tests/model_test
      HCCL_TEST_MODELS=long tests/models/spin_test.py --spin spin --compiler gcc
      for transport in shm tcp; do
        HCCL_TEST_ABORTS=10000 HCCL_TRANSPORT=$transport HCCL_LOG=off HCCL_FLIGHT_RECORDER_DIR=off build/dev/tests/api_tests --file=abort_test.cc
      done
      HCCL_TEST_GROUPS=10000 HCCL_TEST_CHURN=1800 HCCL_LOG=off HCCL_FLIGHT_RECORDER_DIR=off build/dev/tests/api_tests --file=churn_test.cc
      LD_PRELOAD=build/dev/tests/support/libhccl_failing_malloc.so HCCL_TEST_FAILURES=3000 HCCL_CONNECT_TIMEOUT=3 HCCL_EXEC_TIMEOUT=3 \
        HCCL_LOG=off HCCL_FLIGHT_RECORDER_DIR=off build/dev/tests/out_of_memory_test
      HCCL_BUILD_DIR=build/dev scripts/torch.sh
      rm -rf build/at_once && pids=()
      for i in 1 2; do
        CMAKE_EXECUTABLE=$cmake .venv-torch/bin/python -m pip install --quiet --no-build-isolation --no-deps \
          --target build/at_once/$i --config-settings=cmake.define.hccl_ROOT="$PWD/build/dev-install" . &
        pids+=($!)
      done
      for pid in "${pids[@]}"; do wait "$pid"; done
      .venv-torch/bin/python tests/torch/pytorch_suite.py --ranks 4
      step torch215
      HCCL_TEST_LARGE=1 .venv-torch/bin/python -m pytest tests/torch/test_large.py
      # Ray does not quote a space in Python's path when it starts processes, so this does not work in .ci/run's clone.
      .venv-torch/bin/python -m pip install --quiet --disable-pip-version-check -r scripts/requirements-ray.txt
      .venv-torch/bin/python -m pytest -q tests/ray
      # Neither does DeepSpeed's extension link there.
      DS_BUILD_OPS=0 .venv-torch/bin/python -m pip install --quiet --disable-pip-version-check -r scripts/requirements-deepspeed.txt
      .venv-torch/bin/python -m pytest -q tests/torch/test_gloo.py -k deepspeed
      HCCL_BUILD_DIR=build/dev .venv-torch/bin/python -m pytest -q tests/docs
      HCCL_BUILD_DIR=build/dev scripts/vllm.sh
      .venv-vllm/bin/python -m pytest -q tests/vllm
      scripts/fuzz.sh
      analyzer='-*,clang-analyzer-*,-clang-analyzer-optin.performance.Padding,-clang-analyzer-unix.Errno'
      scripts/tidy.py build/dev "--checks=$analyzer" $(git ls-files 'hccl/*.cc' 'transport/*.cc' 'split/*.cc')
      if [[ $(uname -m) != aarch64 ]]; then scripts/arm.sh; fi
      .venv-torch/bin/python -m pytest -q tests/vllm_ascend
      scripts/docs.sh
      scripts/setup.sh debootstrap
      scripts/wheels.sh 3.11
      tests/install/wheel_test.sh bookworm
      scripts/packages.sh
      tests/install/package_test.sh
      ;;
  esac
}

# tell NAME: counts the time of step NAME. The lane of Python first shows the step's output as a whole, so that the
# lines of two lanes do not mix.
log=build/python-lane.log out=1
tell() {
  if ((out != 1)); then cat "$log" && : >"$log"; fi >&"$out"
  took "$1" >&"$out"
}
# lane STEP...: runs steps one after the other.
lane() {
  for now in "$@"; do
    step "$now"
    tell "$now"
  done
}

now=setup
scripts/setup.sh
took "$now"

first=() native=() python=() last=()
for name in "${steps[@]}"; do
  case $name in
    quick | format) first+=("$name") ;;
    python | jax | torch | torch215 | tensorflow) python+=("$name") ;;
    release | asan) native+=("$name") last=(serial) ;;
    *) native+=("$name") ;;
  esac
done
lane "${first[@]}"
if ((${#native[@]} && ${#python[@]})); then
  # Side by side: many tests wait, or start one process at a time, so one lane uses six tenths of two cores.
  build dev
  : >"$log"
  trap 'exit 1' TERM
  set -m  # a group for the processes of each lane
  for name in native python; do
    declare -n members=$name
    (
      out=1
      if [[ $name == python ]]; then exec {out}>&1 >>"$log" 2>&1; fi
      trap '(($?)) && tell "$now FAILED" && kill $$' EXIT  # one lane that fails ends both
      trap 'trap - EXIT; exit 143' TERM
      lane "${members[@]}"
    ) </dev/null &
    lanes+=($!)
  done
  set +m
  now=''  # a lane that fails says where
  wait "${lanes[0]}"
  wait "${lanes[1]}"
  lanes=() since=$SECONDS
  trap - TERM
else
  lane "${native[@]}" "${python[@]}"
fi
lane "${last[@]}"
