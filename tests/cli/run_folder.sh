#!/usr/bin/env bash
# What happens when the run folder exists, when another job owns it, and when the recipe changed.
source "$(dirname "$0")/common.sh"

short=(train "$tiny" run.root=. run.name=run train.duration=4step parallel.expert_ranks=1)
expect 0 "$program" "${short[@]}"
for name in resolved.yaml env.json summary.json metrics.jsonl metrics.csv experts.jsonl; do
  [ -s "run/$name" ] || fail "run/$name was not written"
done
expect 0 answered inspect run --experts
grep -q 'blocks.1.moe_c: 0=' output || fail "inspect --experts shows no shares: $(cat output)"
grep -q ' moe_load_p95 ' output || fail "inspect --experts shows no metrics: $(cat output)"
grep -q '^run/experts.jsonl, step 4$' <<<"$(head -n 1 output)" || fail "another path: $(cat output)"
mkdir elsewhere
(cd elsewhere && expect 0 "$program" inspect "$OLDPWD/run/" --experts &&
  grep -q "^$OLDPWD/run/experts.jsonl, " <<<"$(head -n 1 output)") || fail "another path: $(cat elsewhere/output)"
expect 0 answered inspect run --experts --heat-map loads.svg
grep -q '</svg>' loads.svg || fail "no heat map was drawn"
expect 2 answered inspect run --heat-map loads.svg
expect 2 answered inspect run key=value
expect 2 answered inspect run --activation-maps maps
grep -q 'no Nexus layers' output || fail "no word of what is missing: $(cat output)"
expect 2 answered inspect run --expert-maps maps
grep -q 'no MoE layers over patches of images (blocks.1.moe_s: ' output ||
  fail "the layers are not named: $(cat output)"
[ ! -e maps ] || fail "a refusal left a folder"
expect 0 "$program" eval run
grep -q 'I(token; unit)' output || fail "eval shows no routing: $(cat output)"
"$program" eval run --json | python3 -c '
import json, sys
for layer in json.load(sys.stdin)["moe"]:
  assert abs(sum(layer["load_share"]) - 1) < 1e-9 and layer["mutual_information"] >= 0, layer'
python3 -c 'import json; [json.load(open("run/" + n)) for n in ("env.json", "summary.json")]'

expect 10 "$program" "${short[@]}"
grep -q 'run.on_existing=resume' output || fail "the refusal does not say what to do: $(cat output)"
expect 0 "$program" "${short[@]}" run.on_existing=new
[ -d run-2 ] || fail "run.on_existing=new made no run-2"
expect 0 "$program" "${short[@]}" run.on_existing=overwrite
expect 0 "$program" "${short[@]}" run.on_existing=resume train.duration=6step
grep -q 'the learning rate differs from the schedule so far: .*, since the training now spans 6 steps instead of 4' \
  output || fail "a stretched schedule is not told: $(cat output)"
grep -q 'this session  *2 steps, after step 4' output || fail "this session: $(cat output)"
[ "$(find run/tb -name 'events.out.tfevents.*' | wc -l)" -eq 2 ] || fail "tb/: $(ls run/tb)"
expect 0 "$program" "${short[@]}" run.on_existing=resume train.duration=6step
! grep -q 'differs from the schedule' output || fail "the same schedule is told as another: $(cat output)"
grep -q '"step":6,' run/metrics.jsonl || fail "the resumed run did not reach step 6"

expect 12 "$program" "${short[@]}" run.on_existing=resume train.duration=8step train.batch=16
grep -q 'train.batch' output || fail "the difference is not named: $(cat output)"
expect 0 "$program" "${short[@]}" run.on_existing=resume train.duration=8step optimizer.lr=1e-4
grep -q 'optimizer.lr' output || fail "a changed learning rate gave no warning"
expect 0 "$program" "${short[@]}" run.on_existing=resume train.duration=10step data.valid.samples=24
grep -q 'data.valid.samples  checkpoint: .*recipe: 24' output || fail "a changed split is not named: $(cat output)"
grep -q 'evaluations before and after this change do not compare' output || fail "$(cat output)"
grep -q '"samples":24' run/metrics.jsonl || fail "not evaluated on the changed split"
expect 0 "$program" "${short[@]}" run.on_existing=resume train.duration=16step train.batch=16 --override
grep -q '"overridden":"train.batch"' <<<"$("$program" inspect run --json)" || fail "--override left no trace"

# What is refused leaves the earlier run as it was.
digest=$("$program" ckpt digest run)
for mistake in model.init_from=nowhere 'optimizer.no_decay=[temperature]' model.patch=5; do
  code=0
  "$program" "${short[@]}" run.on_existing=overwrite "$mistake" >output 2>&1 || code=$?
  [[ "$code" =~ ^(2|10)$ ]] || fail "$mistake ended with $code: $(cat output)"
  [ "$("$program" ckpt digest run)" = "$digest" ] || fail "$mistake cost the earlier run"
  code=0
  "$program" "${short[@]}" run.name=never "$mistake" >output 2>&1 || code=$?
  [[ "$code" =~ ^(2|10)$ ]] || fail "$mistake ended with $code: $(cat output)"
  [ ! -e never ] || fail "$mistake left a run folder"
done
expect 10 answered check "$tiny" 'optimizer.no_decay=[temperature]'
grep -Eq 'command line: optimizer.no_decay' output || fail "no place is named: $(cat output)"

# Checkpoints of which none can be read are neither passed over nor touched.
cp -r run rotten
sed -i 's/"step"/"stop"/' rotten/ckpt/step-*/manifest.json
find rotten/ckpt -type f -exec sha256sum {} + | sort >before
expect 20 "$program" "${short[@]}" run.name=rotten run.on_existing=resume
find rotten/ckpt -type f -exec sha256sum {} + | sort | diff before - || fail "checkpoints were touched"

# A run without a checkpoint, as of a job that was queued again before its first, starts anew; what it
# has recorded is kept.
cp -r run gone
rm -r gone/ckpt/*
cp -r gone earlier
expect 0 "$program" "${short[@]}" run.name=gone run.on_existing=resume
[ "$(grep -c "warning: no checkpoint in './gone' to resume from: starting anew, its records are \*.attempt-1$" output)" -eq 1 ] ||
  fail "not told in one line: $(cat output)"
[ "$(ls gone/ckpt)" = step-00000004 ] || fail "not begun at step 0: $(ls gone/ckpt)"
for name in resolved.yaml env.json metrics.jsonl metrics.csv experts.jsonl summary.json report.html LATEST; do
  cmp "gone/$name.attempt-1" "earlier/$name" || fail "$name was not kept"
done
grep -q '"step":4,' gone/metrics.jsonl || fail "no records of its own: $(cat gone/metrics.jsonl)"
[ "$(grep -c '"step":1,' gone/metrics.jsonl)" -le 1 ] || fail "records of two attempts in one file"
expect 0 "$program" "${short[@]}" run.name=gone run.on_existing=overwrite
[ ! -e gone/metrics.jsonl.attempt-1 ] || fail "overwrite left records"

# A stranger's folder is never removed.
mkdir precious && echo data >precious/file
expect 10 "$program" "${short[@]}" run.name=precious run.on_existing=overwrite
[ -s precious/file ] || fail "overwrite removed a folder that was no run"

# Two jobs, one folder: the second is told who owns it.
"$program" train "$tiny" run.root=. run.name=owned train.duration=100000step parallel.expert_ranks=1 >owner.txt 2>&1 &
owner=$!
until grep -qs '"step":1,' owned/metrics.jsonl; do
  kill -0 "$owner" || fail "the owner ended: $(cat owner.txt)"
  sleep 0.05
done
expect 15 "$program" train "$tiny" run.root=. run.name=owned run.on_existing=resume parallel.expert_ranks=1
grep -q "$owner" output || fail "the owner's process is not named: $(cat output)"
kill -TERM "$owner"
code=0
wait "$owner" || code=$?
[ "$code" -eq 75 ] || fail "a stopped run ended with $code"
