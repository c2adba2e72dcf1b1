# Sourced by the end-to-end tests. $1 is the program; the working directory is an empty scratch.
set -euo pipefail
program=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
tiny=$here/recipes/tiny.yaml
# Ranks that wait for others leave them the core where there are fewer cores than ranks of all tests.
export OMPI_MCA_mpi_yield_when_idle=1

fail() {
  echo "FAIL: $*" >&2
  exit 1
}

# ranks COUNT ARGUMENT...: the program under mpirun, cores shared out. After a code other than 0
# mpirun waits a second or two for ranks that are gone already, unless told.
ranks() {
  local count=$1
  shift
  SHOAL_PROGRAM=$program OMPI_MCA_odls_base_sigkill_timeout=0 "$root/launch/run" -n "$count" "$@"
}

# answer ARGUMENT...: what the program answers, in ./stdout and ./stderr, and its exit code, without
# that it is loaded again; see tests/support/answers_program.cpp. It does not see variables that were
# set since the first call.
answer() {
  local code
  if [ -z "${answers_ask:-}" ]; then
    coproc ANSWERS { exec "$(dirname "$program")/answers" "$program"; }
    # Those of a coproc are closed in subshells.
    exec {answers_ask}>&"${ANSWERS[1]}" {answers_told}<&"${ANSWERS[0]}"
  fi
  printf '%s\0' "$PWD" $# "$@" >&"$answers_ask"
  read -r -u "$answers_told" code
  return "$code"
}
# answered ARGUMENT...: the same, printed as by the program.
answered() {
  local code=0
  answer "$@" || code=$?
  cat stderr >&2
  cat stdout
  return "$code"
}

# expect CODE COMMAND...: the command must end with this exit code; its output goes to ./output.
expect() {
  local wanted=$1 got=0
  shift
  "$@" >output 2>&1 || got=$?
  [ "$got" -eq "$wanted" ] || {
    cat output >&2
    fail "'$*' ended with $got, wanted $wanted"
  }
}

digest() { "$program" ckpt digest "$1"; }

# The processes of shoal among the descendants of process $1.
ranks_of() {
  local child
  for child in $(pgrep -P "$1"); do
    if [ "$(cat "/proc/$child/comm" 2>/dev/null)" = "$(basename "$program")" ]; then
      echo "$child"
    else
      ranks_of "$child"
    fi
  done
}
a_rank_of() { ranks_of "$1" | sed -n 1p; }

# within SECONDS FAULT COMMAND...: waits until the command succeeds, for so long at most.
within() {
  local end=$((SECONDS + $1))
  until "${@:3}"; do
    [ "$SECONDS" -lt "$end" ] || fail "$2, after $1 s"
    sleep 0.05
  done
}
# Dead, though perhaps not yet waited for by its parent.
is_gone() { ! grep -qs '^State:.[^ZX]' "/proc/$1/status"; }

# wait_until WHAT COMMAND...: until the command succeeds, while process $job lives.
wait_until() {
  until "${@:2}"; do
    kill -0 "$job" 2>/dev/null || fail "training ended before $1: $(cat job.txt)"
    sleep 0.05
  done
}
