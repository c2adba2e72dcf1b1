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

# `auto` fits any number of ranks; what it stands for is recorded, and chosen again by a resume.
auto=(train "$tiny" run.root=. run.name=auto parallel.expert_ranks=auto)
spread_over() { grep -q "^  expert_ranks: $1 " auto/resolved.yaml || fail "$(cat auto/resolved.yaml)"; }
expect 0 ranks 3 "${auto[@]}" train.duration=1step
spread_over 1
expect 0 ranks 2 "${auto[@]}" train.duration=2step run.on_existing=resume
spread_over 2
[[ "$("$program" inspect auto --json)" =~ '"expert_ranks":"2"' ]] || fail "$("$program" inspect auto --json)"
expect 0 ranks 2 train "$tiny" run.root=. run.name=fixed train.duration=2step
expect 0 ranks 2 "${auto[@]}" run.name=two train.duration=2step
[ "$(digest two)" = "$(digest fixed)" ] || fail "auto trains something else"
expect 0 "$program" check "$tiny" --world 4 parallel.expert_ranks=auto
grep -q '^ranks  *4 = 4 expert-parallel ranks x 1 replica$' output || fail "$(cat output)"

# Ranks that were started with different recipes are told who has which.
expect 14 mpirun --allow-run-as-root --oversubscribe -np 1 "$program" train "$tiny" run.root=. : \
  -np 1 "$program" train "$tiny" run.root=. run.seed=2
grep -qE 'recipe: rank [01] has sha256:[0-9a-f]+; rank [01] has sha256:' output || fail "$(cat output)"
[ "$(grep -c 'error\[E14\]' output)" -eq 1 ] || fail "not one message: $(cat output)"
[ ! -e run ] || fail "a refused run left a folder"

# Ranks of one version but of other builds, as after a change that was not committed: `other` is the
# program with another build id.
python3 - "$program" <<'END'
import sys
program = bytearray(open(sys.argv[1], "rb").read())
note = program.index(bytes([4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0]) + b"GNU\0")
program[note + 16] ^= 1
open("other", "wb").write(program)
END
chmod +x other
# two_builds ARGUMENT...: rank 1 runs `other`.
two_builds() {
  mpirun --allow-run-as-root --oversubscribe -np 1 "$program" "$@" : -np 1 ./other "$@"
}
expect 14 two_builds train "$tiny" run.root=.
grep -qE 'program: rank [01] has [0-9a-f]{40}; rank [01] has [0-9a-f]{40}' output ||
  fail "the builds are not named: $(cat output)"
! grep -q 'libshoal.so:' output || fail "equal libraries are called different: $(cat output)"
[ ! -e run ] || fail "a refused run left a folder"
expect 14 two_builds doctor
expect 0 "$program" train "$tiny" run.root=. train.duration=1step parallel.expert_ranks=1
expect 14 two_builds eval run
expect 0 ./other eval run
