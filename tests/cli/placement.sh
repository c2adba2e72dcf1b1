#!/usr/bin/env bash
# A run of three ranks that places units by load after a resume ends where one that placed them in
# runs from start to end does, and says where they are.
source "$(dirname "$0")/common.sh"

options=(run.root=. parallel.expert_ranks=3 parallel.uneven=true train.log_every=1step)
expect 0 ranks 3 train "$tiny" "${options[@]}" run.name=runs_of_units
expect 75 ranks 3 train "$tiny" "${options[@]}" run.name=by_load run.stop_after=5step \
  run.on_existing=resume parallel.placement=by_load
grep -q 'by_load: no load has been logged yet' by_load/log/rank-00000.log ||
  fail "a first run does not say that it has no loads"
expect 0 ranks 3 train "$tiny" "${options[@]}" run.name=by_load run.on_existing=resume \
  parallel.placement=by_load
grep -q 'by_load: experts are placed by the load that was logged last' by_load/log/rank-00000.log ||
  fail "a resumed run does not say by which loads it places units"
# The step after the resume has the same loads, on other ranks.
overload() { grep '"step":6,' "$1/experts.jsonl" | grep -o '"rank_overload":[^]]*'; }
load() { grep '"step":6,' "$1/experts.jsonl" | grep -o '"load":[^]]*'; }
[ "$(load by_load)" = "$(load runs_of_units)" ] || fail "placement changed the loads"
[ "$(overload by_load)" != "$(overload runs_of_units)" ] || fail "units stand where they stood"
# Sums over ranks may round otherwise: the loss on the validation split to five digits.
final_loss() { grep '"event":"eval"' "$1/metrics.jsonl" | tail -n 1 | grep -o '"loss":[0-9.]*'; }
[ "$(final_loss runs_of_units | cut -c 1-13)" = "$(final_loss by_load | cut -c 1-13)" ] ||
  fail "placement changed the result: $(final_loss runs_of_units), $(final_loss by_load)"
# Units did move: at the same step, other ranks are the busy ones.
overload() { tail -n 1 "$1/experts.jsonl" | grep -o '"rank_overload":[^]]*'; }
[ "$(overload runs_of_units)" != "$(overload by_load)" ] ||
  fail "no unit moved: $(overload by_load)"
