#!/usr/bin/env bash
# Ranks and experts that do not fit are refused before anything is written, in one copy.
source "$(dirname "$0")/common.sh"

expect 11 ranks 3 train "$tiny" run.root=. parallel.expert_ranks=2
[ "$(grep -c 'error\[E11\]' output)" -eq 1 ] || fail "not one message: $(cat output)"
grep -q '3' output || fail "the arithmetic is missing: $(cat output)"
expect 11 ranks 3 train "$tiny" run.root=. parallel.expert_ranks=3
grep -q 'parallel.uneven' output || fail "uneven shares are not offered: $(cat output)"
[ ! -e run ] || fail "a refused run left a folder"
expect 11 "$program" check "$tiny" --world 3 parallel.expert_ranks=2

# Ranks that were started with different recipes are told who has which.
expect 14 mpirun --allow-run-as-root --oversubscribe -np 1 "$program" train "$tiny" run.root=. : \
  -np 1 "$program" train "$tiny" run.root=. run.seed=2
grep -qE 'recipe: rank [01] has sha256:[0-9a-f]+; rank [01] has sha256:' output || fail "$(cat output)"
[ "$(grep -c 'error\[E14\]' output)" -eq 1 ] || fail "not one message: $(cat output)"
[ ! -e run ] || fail "a refused run left a folder"
