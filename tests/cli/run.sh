#!/usr/bin/env bash
# launch/run: ranks share out the cores; more ranks than cores, root and bad numbers are handled.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
unset OMP_NUM_THREADS

cat >program <<'END'
#!/usr/bin/env bash
printf 'rank %s threads %s cpus %s args %s\n' "$OMPI_COMM_WORLD_RANK" "$OMP_NUM_THREADS" \
  "$(taskset -cp $$ | sed 's/.*: //')" "$*"
[ "${!#}" != fail_on_1 ] || [ "$OMPI_COMM_WORLD_RANK" != 1 ] || exit 13
END
chmod +x program
export SHOAL_PROGRAM=$PWD/program

fail() { echo "FAILED: $*"; cat output; exit 1; }
run() { "$root/launch/run" "$@" >output 2>&1; }
count() { grep -c -- "$1" output || true; }

cores=$(lscpu -p=CORE,SOCKET | grep -v '^#' | sort -u | wc -l)
run train a=b c=d || fail "one rank"
[ "$(count "rank 0 threads $cores .*args train a=b c=d")" -eq 1 ] || fail "one rank gets all cores"

if [ "$cores" -ge 2 ]; then
  run -n 2 train || fail "two ranks"
  [ "$(count "threads $((cores / 2)) ")" -eq 2 ] || fail "two ranks get half of the cores each"
  [ "$(sed 's/.*cpus \(.*\) args.*/\1/' output | sort -u | wc -l)" -eq 2 ] ||
    fail "two ranks must not share cores"
fi

run -n $((2 * cores + 1)) train || fail "more ranks than cores"
[ "$(count 'threads 1 ')" -eq $((2 * cores + 1)) ] || fail "a rank without a core has one thread"

status=0
run -n 2 train fail_on_1 || status=$?
[ "$status" -eq 13 ] || fail "a rank's exit code must come through, got $status"

for bad in 0 -1 x 1.5; do
  ! run -n "$bad" train || fail "-n $bad was accepted"
  [ "$(count "needs a number of ranks, got '$bad'")" -eq 1 ] || fail "-n $bad: message"
done
! run || fail "no command was accepted"
SHOAL_PROGRAM=$PWD/absent
! run train || fail "an absent program was accepted"
[ "$(count 'Build it: launch/quickstart')" -eq 1 ] || fail "absent program: message"
