#!/usr/bin/env bash
# The page that training writes at its end, and `shoal report`.
source "$(dirname "$0")/common.sh"

short=(train "$tiny" run.root=. train.duration=4step parallel.expert_ranks=1)
expect 0 "$program" "${short[@]}" run.name=a
grep -q '  ./a/report.html' output || fail "the report is not listed: $(cat output)"
grep -q '</html>' a/report.html || fail "no whole report was written"
grep -q '<figcaption>loss</figcaption>' a/report.html || fail "the report has no curve of the loss"
grep -q '<td>command line</td>' a/report.html || fail "the report has no origins of the recipe"
# Also after a stop; and whatever of a run is there.
expect 75 "$program" "${short[@]}" run.name=b run.stop_after=2step
[[ $(tail -n 1 output) = *run.on_existing=resume* ]] || fail "the last line is not how to go on: $(cat output)"
grep -q '  ./b/report.html' output || fail "the report of a stopped run is not listed: $(cat output)"
grep -q 'stopped, the state is saved' b/report.html || fail "the report of a stopped run does not say so"
rm b/summary.json b/report.html
printf '{"step": 3, "lo' >>b/metrics.jsonl
expect 0 "$program" report b
grep -q 'in progress, or ended without a summary' b/report.html || fail "no state in the report"
expect 0 "$program" report a b --out both.html
[ "$(cat output)" = both.html ] || fail "the page is not named: $(cat output)"

# A report that cannot be written ends no training.
expect 0 "$program" "${short[@]}" run.name=c train.duration=2step
rm c/report.html && mkdir c/report.html
expect 0 "$program" "${short[@]}" run.name=c train.duration=4step run.on_existing=resume
grep -q 'the report was not written: .*shoal report ./c' output || fail "no warning: $(cat output)"
[ -s c/summary.json ] || fail "the summary is gone"
rmdir c/report.html

# Several at once do not disturb each other, and leave nothing but the page.
jobs=()
for i in 1 2 3 4; do
  "$program" report c >"report$i.txt" 2>&1 &
  jobs+=($!)
done
for i in 1 2 3 4; do
  wait "${jobs[i - 1]}" || fail "a report beside others failed: $(cat "report$i.txt")"
done
grep -q '</html>' c/report.html || fail "no whole report was written"
! ls c | grep '\.tmp$' || fail "temporary files are left"

# A run's report is its own, so that the run can be overwritten.
expect 0 "$program" "${short[@]}" run.name=a run.on_existing=overwrite
grep -q '</html>' a/report.html || fail "no report after overwriting"

# The page on several runs is in the innermost folder that holds them.
expect 0 "$program" report a b
[ "$(cat output)" = comparison.html ] || fail "the page is not named: $(cat output)"
grep -q '<title>2 runs: a, b' comparison.html || fail "no page on two runs"
mkdir -p group/c && cp -r a group/a && cp -r b group/c/b
expect 0 "$program" report group/a/ group/c/b
[ "$(cat output)" = group/comparison.html ] || fail "another folder: $(cat output)"
(cd group/c && expect 0 "$program" report ../a b && [ "$(cat output)" = ../comparison.html ]) ||
  fail "another folder: $(cat group/c/output)"
expect 2 "$program" report a --out page.txt
expect 0 "$program" report . --json
python3 -c 'import json, sys; sys.exit(len(json.load(open("output"))["runs"]) != 5)' || fail "not all runs"
for runs in none 'a none'; do
  # shellcheck disable=SC2086
  expect 2 "$program" report $runs
  grep -q 'runs/quickstart' output || fail "no next step: $(cat output)"
done
expect 2 "$program" report groip/a
grep -q "did you mean 'group'?" output || fail "no suggestion: $(cat output)"
expect 13 "$program" report a/ckpt/step-00000004
grep -q 'is a checkpoint, not a run' output || fail "a checkpoint is not named: $(cat output)"
