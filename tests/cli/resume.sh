#!/usr/bin/env bash
# Resumed equals uninterrupted: equal digests, metrics and expert loads, for three places to stop
# and for a stop by signal.
source "$(dirname "$0")/common.sh"

digest() { answered ckpt digest "$1"; }
train() { expect "$1" ranks 2 train "$tiny" run.root=. "${@:2}"; }

# A run's metrics without what depends on the machine, and without the agreement of routers with the
# last evaluation of the same process: 40 steps, each logged once, 4 evaluations.
exact_metrics() {
  local machine='samples_per_second|mfu|data_wait|all_to_all_ms|memory_bytes|seconds'
  sed -E "s/,\"($machine|router_agreement)\":[^,}]*//g" "$1/metrics.jsonl" >"$1/exact"
  [ "$(grep -c '"loss_hex":"[^"]*","lr":.*"grad_norm_hex":' "$1/exact")" -eq 40 ] ||
    fail "$1: not 40 steps: $(cat "$1/exact")"
  [ "$(grep -c '"event":"eval","loss":.*"top1":' "$1/exact")" -eq 4 ] ||
    fail "$1: not 4 evaluations: $(cat "$1/exact")"
  [ "$(wc -l <"$1/exact")" -eq 44 ] || fail "$1: not 44 lines: $(cat "$1/exact")"
}

# same_as_whole RUN: the same result, by the same way.
same_as_whole() {
  [ "$(digest whole)" = "$(digest "$1")" ] || fail "$1: the digest differs"
  exact_metrics "$1"
  diff whole/exact "$1/exact" || fail "$1: the metrics differ"
  cmp whole/experts.jsonl "$1/experts.jsonl" || fail "$1: the experts' loads differ"
}

train 0 run.name=whole
expect 0 answered ckpt verify whole  # from here on `digest` is answered by the process that this starts
exact_metrics whole
[[ $(digest whole) =~ ^sha256:[0-9a-f]{64}$ ]] || fail "no digest: $(digest whole)"
[ "$(grep -cE '"router_agreement":(1|0\.[0-9]+),' whole/metrics.jsonl)" -eq 3 ] ||
  fail "the agreement of routers is not in all evaluations but the first"
[ "$(grep -c '"load":' whole/experts.jsonl)" -eq 80 ] || fail "not 40 steps of 2 layers of experts"
[ "$(grep -cE '"rank_overload":\[[0-9.]+,[0-9.]+\]' whole/experts.jsonl)" -eq 80 ] ||
  fail "not an overload factor for each of 2 ranks: $(head -n 1 whole/experts.jsonl)"
train 0 run.name=deterministic run.deterministic=true
same_as_whole deterministic
for stop in 17 10 31; do
  train 75 run.name="cut$stop" run.stop_after="${stop}step" run.log_layers=4step
  train 0 run.name="cut$stop" run.on_existing=resume run.log_layers=4step
  same_as_whole "cut$stop"
  cmp cut17/layers.jsonl "cut$stop/layers.jsonl" || fail "cut$stop: the norms of layers differ"
done
# The same weights without norms and with them; each layer's once an interval.
[ ! -e whole/layers.jsonl ] || fail "norms of layers were not asked for"
[ "$(grep '"layer":"head"' cut17/layers.jsonl | sed -E 's/.*"step":([0-9]+),.*/\1/' | xargs)" = \
  '4 8 12 16 20 24 28 32 36 40' ] || fail "not a record per interval: $(cat cut17/layers.jsonl)"
grep -q '<section id="layers">' cut17/report.html || fail "the report has no norms of layers"
! grep -q '<section id="layers">' whole/report.html || fail "a report has norms without records"
# whole_and_cut NAME OVERRIDE...: trained at once and in two goes.
whole_and_cut() {
  local name=$1
  shift
  train 0 run.name="$name" "$@"
  train 75 run.name="${name}_cut" run.stop_after=17step "$@"
  train 0 run.name="${name}_cut" run.on_existing=resume "$@"
  [ "$(digest "$name")" = "$(digest "${name}_cut")" ] || fail "$name: the digest differs on resume"
}
# A router's balancing bias is state as well.
whole_and_cut biased 'model.sparse.channel_moe={router: {name: sigmoid, k: 2, bias: {rate: 0.01}}, experts: {count: 4, hidden: 32}}'
# So are shards of the optimizer's state.
whole_and_cut sharded parallel.expert_ranks=1 parallel.shard_optimizer=true train.recompute=true
grep -q 'sha256:' cut17/log/rank-00000.log || fail "the digest of what was loaded is not logged"

# A signal to one rank stops all of them; the same command goes on.
# Where other jobs run, the training may end before the signal comes: then once more.
for _ in 1 2 3 4 5; do
  rm -rf signalled
  ranks 2 train "$tiny" run.root=. run.name=signalled >signalled.txt 2>&1 &
  job=$!
  until grep -qs '"step":3,' signalled/metrics.jsonl; do
    kill -0 "$job" 2>/dev/null || break
    sleep 0.05
  done
  rank=$(a_rank_of "$job") && kill -USR1 "$rank" || true
  code=0
  wait "$job" || code=$?
  # 138: the signal met a rank that had ended its training.
  [ -e signalled/ckpt/step-00000040 ] && { [ "$code" -eq 0 ] || [ "$code" -eq 138 ]; } || break
done
[ "$code" -eq 75 ] || fail "a signal ended the job with $code, wanted 75: $(cat signalled.txt)"
train 0 run.name=signalled run.on_existing=resume
same_as_whole signalled

# A resume that trains no step leaves what tells of the run as it is, on other ranks too.
records() { sha256sum "$1"/{resolved.yaml,env.json,summary.json,report.html,metrics.jsonl} "$1"/tb/*; }
alone() { expect 0 "$program" train "$tiny" run.root=. parallel.expert_ranks=1 run.threads=1 run.on_existing=resume "$@"; }
before=$(records whole)
alone run.name=whole
[ "$(records whole)" = "$before" ] || fail "a resume of a finished run rewrote its records"
grep -q 'the run was finished already, at step 40; its records, summary and report stay' output ||
  fail "nothing is said: $(cat output)"
train 75 run.name=stopped run.stop_after=7step
before=$(records stopped)
alone run.name=stopped train.duration=5step
[ "$(records stopped)" = "$before" ] || fail "a shorter train.duration rewrote the run's records"
grep -q 'the checkpoint is at step 7, and train.duration ends at step 5; its records' output ||
  fail "nothing is said: $(cat output)"
! grep -q 'finished already' output || fail "a stopped run is called finished: $(cat output)"
train 0 run.name=stopped run.on_existing=resume
same_as_whole stopped

# A run that ended without its summary gets one when it is resumed, from its weights.
exact_metrics whole
cp whole/exact before
rm whole/summary.json
train 0 run.name=whole run.on_existing=resume
exact_metrics whole
cmp before whole/exact || fail "the metrics of a finished run were touched"
python3 - <<'END' || fail "the summary is not that of the last evaluation: $(cat whole/summary.json)"
import json
logged = [json.loads(line) for line in open("whole/metrics.jsonl") if '"event"' in line][-1]
summary = json.load(open("whole/summary.json"))
assert summary["steps"] == 40 and summary["evaluation"]["top1"] == logged["top1"], (summary, logged)
END
grep -q 'top-1' output || fail "no table was printed: $(cat output)"
