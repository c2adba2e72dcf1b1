#!/usr/bin/env bash
# `shoal runs` lists, sorts, filters and prunes runs; a mistyped run is told with what it may mean.
source "$(dirname "$0")/common.sh"

short=(train "$tiny" train.duration=4step evaluate.every=2step checkpoint.every=2step parallel.expert_ranks=1)
expect 0 "$program" "${short[@]}" run.name=one
expect 75 "$program" "${short[@]}" run.name=group/two run.seed=2 run.stop_after=2step
# A run that was started from the first one and killed before its first checkpoint.
"$program" "${short[@]}" run.name=three model.init_from=runs/one train.duration=100000step \
  checkpoint.every=never evaluate.every=never >three.txt 2>&1 &
job=$!
trap 'kill -KILL "$job" 2>/dev/null || true' EXIT
wait_until "three was going on" grep -qs '"step":1,' runs/three/metrics.jsonl
expect 0 answered runs
grep -qE '^  three +running +[0-9]+ +100000 ' output || fail "three is not running: $(cat output)"
expect 0 answered runs --prune --yes
! grep -q 'three' output || fail "a running run was looked at: $(cat output)"
kill -KILL "$job"
wait "$job" || true

expect 0 answered runs
[ "$(grep -cE '^  (group/two|one|three) ' output)" -eq 3 ] || fail "not three runs: $(cat output)"
grep -qE '^  one +done +4 +4 +top1 +0\.[0-9]+ +[0-9.]+s +1 +[0-9.]+ KiB +20[0-9-]+ [0-9:]+ UTC' output || fail "$(cat output)"
answer runs --json || fail "no JSON"
python3 - <<'END'
import json, os
runs = json.load(open("stdout"))["runs"]
assert [run["name"] for run in runs] == ["group/two", "one", "three"], runs
two, one, three = runs
assert [run["state"] for run in runs] == ["stopped", "done", "crashed"], runs
assert [run["step"] for run in (two, one)] == [2, 4] and one["total_steps"] == 4, runs
assert one["path"] == "runs/one" and one["checkpoint"] == "step-00000004", one
evaluations = [json.loads(line) for line in open("runs/one/metrics.jsonl") if '"event":"eval"' in line]
assert one["metric"] == "top1" and one["score"] == evaluations[-1]["top1"], one
assert one["ranks"] == 1 and 0 < one["time"] < 600 and three["score"] is None, runs
files = [os.path.join(at, name) for at, _, names in os.walk("runs/one") for name in names if name != "report.html"]
assert one["size"] == sum(map(os.path.getsize, files)), one
END
# names ARGUMENT...: the names that are listed, in order.
names() { answered runs "$@" | sed -n '3,$s/^  \([^ ]*\) .*/\1/p' | tr '\n' ' '; }
[ "$(names --sort -name)" = "three one group/two " ] || fail "sorted: $(names --sort -name)"
[ "$(names --sort=step --filter o state=done)" = "one " ] || fail "filtered: $(names --filter o state=done)"
[ "$(names runs/group runs/one)" = "runs/group/two runs/one " ] || fail "two folders: $(names runs/group runs/one)"
# Keys of recipes.
[ "$(names --filter run.seed=2)" = "group/two " ] || fail "of a seed: $(names --filter run.seed=2)"
expect 0 answered runs --columns run.seed,model.backbone,score --sort -run.seed runs
[ "$(head -n 1 output | xargs)" = 'name run.seed model.backbone score' ] || fail "columns: $(cat output)"
[ "$(sed -n 3p output | xargs | cut -d' ' -f 1-3)" = 'group/two 2 sparse_mlp' ] || fail "columns: $(cat output)"
expect 2 answered runs --columns train.seed
grep -q "no run has the key 'train.seed'; recipes have data.seed run.seed" output || fail "no suggestion: $(cat output)"
expect 2 answered runs --sort stat
grep -q "did you mean 'state'?" output || fail "no suggestion: $(cat output)"
expect 2 answered runs --yes
[ "$(ranks 2 runs | grep -c '^  one ')" -eq 1 ] || fail "listed once a rank"

# What is cut or damaged ends no listing.
cp -r runs damaged
truncate -s -5 damaged/one/metrics.jsonl
echo '{' >damaged/one/env.json
rm -r damaged/group/two/metrics.jsonl && mkdir damaged/group/two/metrics.jsonl
expect 0 answered runs damaged
grep -qE '^  one +\? .* env.json: no JSON object' output || fail "damage is not told: $(cat output)"
[ "$(grep -c UTC output)" -eq 3 ] || fail "not three runs: $(cat output)"

# Pruning: a run with a checkpoint stays, and one that another started from.
mv runs/three runs/gone
cp -r runs/one runs/source
rm runs/source/summary.json
cp -r runs/one runs/tuned
sed -E "s#(from: +)runs/one#\1runs/source#" runs/gone/resolved.yaml >runs/tuned/resolved.yaml
[ "$(names --filter state=crashed)" = "gone source " ] || fail "crashed: $(names --filter state=crashed)"
expect 0 answered runs --prune
[ "$(grep -cE '^would remove gone \(crashed, .*iB\)$' output)" -eq 1 ] || fail "$(cat output)"
[ "$(cat output | wc -l)" -eq 2 ] && grep -q '^nothing is removed without --yes$' output || fail "$(cat output)"
[ -s runs/gone/env.json ] || fail "removed without --yes"
expect 0 answered runs --prune --yes --filter source
[ -s runs/gone/env.json ] || fail "removed what did not fit"
rm -r runs/source/ckpt
expect 0 answered runs --prune --yes --filter source
grep -qE '^kept +source \(crashed, .*\): model.init_from of tuned names it$' output || fail "$(cat output)"
[ -s runs/source/env.json ] || fail "removed weights that a run started from"
here=$PWD
python3 - <<'END'
import json
env = json.load(open("runs/tuned/env.json"))
env["starts"] = [3, *env["starts"], {**env["starts"][0], "folder": "/"}]
json.dump(env, open("runs/tuned/env.json", "w"))
END
(cd / && "$program" runs "$here/runs" --prune --yes --filter source) >output
grep -q '^kept ' output || fail "started elsewhere, then resumed in /: $(cat output)"
cp runs/tuned/resolved.yaml tuned.yaml
sed -i -E "s#(from: +)runs/source#\1\"runs/that's it\"#" runs/tuned/resolved.yaml
mv runs/source "runs/that's it"
expect 0 answered runs --prune --yes --filter that
grep -q '^kept ' output || fail "a path in quotes leads to nothing: $(cat output)"
mv "runs/that's it" runs/source && mv tuned.yaml runs/tuned/resolved.yaml
expect 0 answered runs --prune --yes
[ ! -e runs/gone ] && [ "$(names)" = "group/two one source tuned " ] || fail "$(cat output; names)"
rm -r runs/source runs/tuned

# A resume that finds nothing says so, and what may have been meant; then it starts.
expect 0 "$program" "${short[@]}" run.name=onf run.on_existing=resume
grep -q "^warning: no run to resume in 'runs/onf' (run.root, run.name): starting a new one; did you mean 'runs/one'?" output ||
  fail "no warning: $(cat output)"
[ -d runs/onf/ckpt/step-00000004 ] || fail "nothing was trained"

# A mistyped run: what may have been meant. A run without a valid checkpoint is another matter.
for command in eval inspect 'inspect --sparsity' 'ckpt ls' 'ckpt verify' 'ckpt digest' report; do
  # shellcheck disable=SC2086
  expect 2 answered $command runs/oen
  grep -q "'runs/oen' does not exist; did you mean 'runs/one'?" output || fail "$command: $(cat output)"
done
expect 2 answered eval one
grep -q "did you mean 'runs/one'?" output || fail "no suggestion: $(cat output)"
expect 2 answered ckpt diff runs/one runs/one/ckpt/step-00000003
grep -q "step-0000000[24]'?" output || fail "no suggestion: $(cat output)"
expect 2 ranks 2 eval runs/oen
rm -r runs/onf/ckpt/*
expect 20 answered eval runs/onf
expect 2 answered runs run
grep -q "'run' does not exist; did you mean 'runs'?" output || fail "no suggestion: $(cat output)"
mkdir empty
expect 0 answered runs empty
[ "$(names empty)" = "" ] || fail "runs in an empty folder: $(cat output)"
