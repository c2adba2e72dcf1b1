#!/usr/bin/env bash
# A checkpoint of four ranks loads on one, two, three (uneven) and four, with the same digest.
source "$(dirname "$0")/common.sh"

expect 75 ranks 4 train "$tiny" run.root=. run.name=four parallel.expert_ranks=4 run.stop_after=5step
saved=$(digest four)
for shape in "1 1" "2 2" "3 3" "4 4" "4 2" "2 1"; do
  read -r world expert_ranks <<<"$shape"
  rm -rf other && cp -r four other
  expect 75 ranks "$world" train "$tiny" run.root=. run.name=other run.on_existing=resume \
    parallel.expert_ranks="$expert_ranks" parallel.uneven=true run.stop_after=1step
  loaded=$(grep -o 'sha256:[0-9a-f]*' other/log/rank-00000.log | tail -n 1)
  [ "$loaded" = "$saved" ] || fail "on $world ranks: loaded '$loaded', saved '$saved'"
done
