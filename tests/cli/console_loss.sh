#!/usr/bin/env bash
# A training whose console goes away, as in `shoal train ... 2>&1 | head`, trains on, saves, and ends
# with its own code.
source "$(dirname "$0")/common.sh"

# onto_closed_pipe COMMAND...: with both outputs into a pipe that nobody reads, and with SIGPIPE as
# shells start programs.
onto_closed_pipe() {
  python3 - "$@" <<'END'
import os, subprocess, sys
reader, writer = os.pipe()
os.close(reader)
code = subprocess.run(sys.argv[1:], stdout=writer, stderr=writer).returncode
sys.exit(code if code >= 0 else 128 - code)
END
}
short=(train "$tiny" run.root=. train.duration=20step parallel.expert_ranks=1)

expect 0 "$program" "${short[@]}" run.name=seen
expect 0 onto_closed_pipe "$program" "${short[@]}" run.name=unseen
[ "$(digest seen)" = "$(digest unseen)" ] || fail "the result differs"
[ ! -e unseen/.lock ] || fail "the lock was left"
grep -q '"exit_code": 0' unseen/summary.json || fail "no summary: $(ls unseen)"
[ "$(grep -c 'the console is lost (Broken pipe)' unseen/log/rank-00000.log)" -eq 1 ] ||
  fail "not noted once: $(cat unseen/log/rank-00000.log)"
grep -q 'standard output is lost' unseen/log/rank-00000.log || fail "the table's loss is not noted"
! grep -q 'lost' seen/log/rank-00000.log || fail "a loss that was none: $(cat seen/log/rank-00000.log)"
expect 75 onto_closed_pipe "$program" "${short[@]}" run.name=stopped run.stop_after=3step
expect 0 "$program" ckpt verify stopped

# What is closed at the start is not taken for the console's by files that are opened later.
closed() { "$@" <&- >&- 2>&-; }
expect 0 closed "$program" "${short[@]}" run.name=closed train.log_every=1step
python3 - <<'END' || fail "console text in a record"
import json
for name in ("metrics", "experts"):
    for line in open(f"closed/{name}.jsonl"):
        json.loads(line)
END
[ "$(digest seen)" = "$(digest closed)" ] || fail "the result differs"

# Under launch/run, Open MPI's own output has a reader to the end.
SHOAL_PROGRAM=$program expect 0 onto_closed_pipe "$root/launch/run" -n 2 "${short[@]}" run.name=ranks parallel.expert_ranks=2
[ ! -e ranks/.lock ] || fail "the lock was left"
grep -q '"exit_code": 0' ranks/summary.json || fail "no summary: $(ls ranks)"

# Commands that only print end as other programs do.
expect 141 onto_closed_pipe "$program" keys
