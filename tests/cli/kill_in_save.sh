#!/usr/bin/env bash
# Kills a small program at every call of a save that changes files, and lets every file call fail
# with each error: the previous or the new checkpoint is valid, never neither, and the next save
# succeeds. The save removes an older checkpoint too.
# Usage: kill_in_save.sh SHOAL, in an empty folder. strace does it, or, where ptrace is refused, a
# preloaded library.
set -euo pipefail
here=$(dirname "$1")
program=$here/save_program
shim=$here/libfault_shim.so
changing=openat,write,fsync,close,rename,mkdir,unlink,rmdir
reading=pread64,getdents64,newfstatat
folder=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || pwd)" shoal-kill-XXXXXX)
trap 'rm -rf "$folder"' EXIT
base=$folder/base
run=$folder/run
failures=0
points=0
code=0

fail() {
  echo "kill_in_save: $*" >&2
  failures=$((failures + 1))
}

fresh() {
  rm -rf "$run"
  cp -r "$base" "$run"
}

quietly() { # without the shell's word on a killed child; its exit code goes to $code
  code=0
  { "$@" > "$folder/out" 2>&1 || code=$?; } 2> /dev/null
}

# What must hold after a kill: step 10 or 20 survives, and step 21 can be saved.
check_survivor() {
  local step
  [ "$code" -eq 137 ] || fail "$1: not killed but ended with $code: $(cat "$folder/out")"
  step=$("$program" verify "$run") || { fail "$1: $step"; return; }
  [ "$step" = 10 ] || [ "$step" = 20 ] || fail "$1: the newest step is $step"
  "$program" save "$run" 21 > /dev/null
  step=$("$program" verify "$run") || { fail "$1, next save: $step"; return; }
  [ "$step" = 21 ] || fail "$1: the next save left step $step"
  [ -z "$(find "$run/ckpt" -maxdepth 1 -name '.*' -not -path "$run/ckpt")" ] || fail "$1: leftovers"
}

# What must hold after one failing call: the program goes on, and its last save succeeds.
check_last_save() {
  local step
  [ "$code" -eq 0 ] || fail "$1: the program ended with $code: $(cat "$folder/out")"
  step=$("$program" verify "$run") || { fail "$1: $step"; return; }
  [ "$step" = 40 ] || fail "$1: the newest step is $step"
}

# And it names the file of what failed.
check_training_went_on() {
  check_last_save "$1"
  grep -q '^saved ' "$folder/out" || fail "$1: the program did not say how it ended"
  if grep -q '^E' "$folder/out"; then
    grep -qE "^E(20|21) step [0-9]+: .*$run" "$folder/out" || fail "$1: $(cat "$folder/out")"
  fi
}

with_strace() { # name, number of the call, what to inject, steps…
  local name=$1 number=$2 what=$3
  shift 3
  fresh
  quietly strace -o /dev/null -e "trace=$name" -e "inject=$name:$what:when=$number" \
    "$program" save "$run" "$@"
  points=$((points + 1))
}

sweep_with_strace() {
  local log=$folder/log name before all number error
  fresh
  strace -o "$log" -e "trace=access,faccessat,$changing,$reading" "$program" save "$run" 20 \
    > /dev/null
  for name in ${changing//,/ } ${reading//,/ }; do
    before=$(sed '/saving-begins/,$d' "$log" | grep -c "^$name(" || true)
    all=$(grep -c "^$name(" "$log" || true)
    [ "$all" -gt "$before" ] || fail "a save makes no call of $name"
    for ((number = before + 1; number <= all; number++)); do
      if [[ ,$changing, == *,$name,* ]]; then
        with_strace "$name" "$number" signal=KILL 20
        check_survivor "kill at $name $number"
      fi
      for error in $([[ ,$changing, == *,$name,* ]] && echo ENOSPC EDQUOT) EIO; do
        with_strace "$name" "$number" "error=$error" 20 30 40
        check_training_went_on "$error at $name $number"
      done
    done
  done
  check_order "$log"
}

# No rename to a committed name before every file created in its folder was synced.
check_order() {
  awk '
    /^openat\(.*O_CREAT/ && /\.tmp-step-/ { open_file[$NF] = $0; waiting++ }
    /^fsync\(/ { file = $0; gsub(/^fsync\(|\).*/, "", file)
                 if (file in open_file) { delete open_file[file]; waiting-- } }
    /^rename\(".*\.tmp-step-/ { renames++; if (waiting > 0) early = 1 }
    END { exit !(renames == 1 && !early) }' "$1" || fail "a rename comes before a sync"
}

sweep_with_shim() {
  local count number error
  echo "kill_in_save: strace is refused here; using the preloaded library"
  fresh
  FAULT_COUNT=$folder/count LD_PRELOAD=$shim "$program" save "$run" 20 > /dev/null
  read -r count _ <"$folder/count"
  for ((number = 1; number <= count; number++)); do
    fresh
    quietly env FAULT_AT="$number" FAULT_KIND=kill LD_PRELOAD="$shim" "$program" save "$run" 20
    check_survivor "kill at call $number"
    for error in 28 5 122; do # ENOSPC, EIO, EDQUOT
      fresh
      quietly env FAULT_AT="$number" FAULT_KIND="$error" LD_PRELOAD="$shim" \
        "$program" save "$run" 20 30 40
      check_training_went_on "errno $error at call $number"
    done
    points=$((points + 4))
  done
}

# The console may lose a line; the checkpoints may not.
lose_the_console() {
  fresh
  code=0
  "$program" save "$run" 20 30 40 > /dev/full 2> "$folder/out" || code=$?
  check_last_save "a console that is full"
}

mkdir "$base"
"$program" save "$base" 5 10 > /dev/null
if [ -z "${SHOAL_NO_STRACE:-}" ] && strace -o /dev/null true 2> /dev/null; then
  sweep_with_strace
else
  sweep_with_shim
fi
lose_the_console
[ "$points" -gt 200 ] || fail "only $points points were tried"
[ "$failures" -eq 0 ] || exit 1
echo "kill_in_save: $points points, all survived"
