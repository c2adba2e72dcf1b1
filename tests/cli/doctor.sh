#!/usr/bin/env bash
# shoal doctor: one line a finding, one JSON object with --json, messages between two ranks.
set -euo pipefail
program=$1
root=$(cd "$(dirname "$0")/../.." && pwd)

fail() { echo "FAILED: $*"; cat output; exit 1; }

"$program" doctor >output || fail "exit code $?"
for name in shoal libtorch cpu cores memory shared_memory disk mpi cma gpu cuda_plugin nccl ranks \
  ring; do
  [ "$(grep -cE "^(ok  |warn|fail)  $name  " output)" -eq 1 ] || fail "one line about $name"
done
! grep -vE '^(ok  |warn|fail)  [a-z_]+ +[^ ]' output || fail "nothing but findings"
grep -qE '^ok +ring +one rank' output || fail "without mpirun there is nothing to send"

"$program" doctor --json >output 2>errors || fail "--json: exit code $?"
python3 -c '
import json, sys
report = json.load(sys.stdin)
assert report["ok"] is True and report["exit_code"] == 0, report
assert {c["verdict"] for c in report["checks"]} <= {"ok", "warn"}, report
assert "ring" in [c["name"] for c in report["checks"]], report
' <output || fail "--json: one object that says ok"

"$root/tests/support/mpi.sh" 2 "$program" doctor >output || fail "two ranks: exit code $?"
[ "$(grep -cE 'ring +2 ranks; slowest trip' output)" -eq 1 ] || fail "two ranks: ring"
[ "$(grep -c 'libtorch' output)" -eq 1 ] || fail "two ranks print one copy"

! "$root/tests/support/mpi.sh" 2 "$program" doctor --calibrate >output 2>&1 ||
  fail "two ranks measure break-even densities"
grep -q 'start it without a launcher' output || fail "two ranks: what to do instead"
