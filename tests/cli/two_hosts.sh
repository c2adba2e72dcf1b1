#!/usr/bin/env bash
# Two hosts, made of namespaces on this machine and joined by a cable, train the quickstart over TCP
# to the bits that one host gives; what they saved evaluates on one rank. A host without the program
# is named, and a signal reaches both.
set -euo pipefail
if [ -z "${SHOAL_IN_NAMESPACES:-}" ]; then
  SHOAL_IN_NAMESPACES=yes exec "$(dirname "$0")/../support/in_namespaces.sh" "$0" "$@"
fi
source "$(dirname "$0")/common.sh"
trap 'exit 130' INT TERM  # no signal ends the first process of a namespace by itself

source "$root/tests/support/two_hosts.sh"

printf 'hosta slots=1\nhostb slots=1\n' >hosts
over_tcp='--mca pml ob1 --mca btl self,tcp'
two_hosts() {
  MPIRUN_FLAGS=$over_tcp SHOAL_PROGRAM=${other_program:-$program} "$root/launch/mpirun.sh" hosts "$@"
}
sent_bytes() { awk '$1 == "cable:" {print $10}' /proc/net/dev; }
quickstart=(train "$root/configs/quickstart.yaml" run.root=. run.threads=1 data.valid.samples=256
  train.log_every=1step evaluate.every=10step)

expect 0 two_hosts "${quickstart[@]}" run.name=two_hosts train.duration=10step
expect 0 ranks 2 "${quickstart[@]}" run.name=one_host train.duration=10step
tr -d ' \n' <two_hosts/env.json | grep '"hosts":\["hosta","hostb"\]' >/dev/null ||
  fail "the ranks were not on two hosts: $(cat two_hosts/env.json)"
# The rows of a step are a megabyte.
[ "$(sent_bytes)" -gt 1000000 ] || fail "only $(sent_bytes) bytes went over the cable"
losses() { grep -o '"step":[0-9]*,\|"loss_hex":"[^"]*"' "$1/metrics.jsonl"; }
[ "$(losses two_hosts | grep -c loss_hex)" -ge 10 ] || fail "no losses in two_hosts/metrics.jsonl"
[ "$(losses two_hosts)" = "$(losses one_host)" ] || fail "two hosts learn what one does not"
[ "$(digest two_hosts/ckpt/step-00000010)" = "$(digest one_host/ckpt/step-00000010)" ] ||
  fail "two hosts save what one does not"

# One rank sums the validation loss in another order.
logged=$(grep '"event":"eval"' two_hosts/metrics.jsonl | tail -n 1 | grep -o '"loss":[0-9.e-]*')
"$program" eval two_hosts --json >evaluation.json || fail "the checkpoint does not evaluate"
python3 - "${logged#*:}" <<'END_OF_CHECK' || fail "one rank evaluates to another loss"
import json, math, sys
loss = json.load(open("evaluation.json"))["loss"]
assert math.isclose(loss, float(sys.argv[1]), rel_tol=1e-6), (loss, sys.argv[1])
END_OF_CHECK

mkdir only_on_a
on_hostb mount -t tmpfs none "$PWD/only_on_a"
ln -s "$program" only_on_a/shoal
other_program=$PWD/only_on_a/shoal expect 1 two_hosts "${quickstart[@]}" run.name=absent
grep -q "mpirun.sh: error: hostb: no $PWD/only_on_a/shoal, and each machine needs it" output ||
  fail "the host without the program is not named: $(cat output)"
[ ! -e absent ] || fail "half a job began"

MPIRUN_FLAGS=$over_tcp SHOAL_PROGRAM=$program "$root/launch/mpirun.sh" hosts "${quickstart[@]}" \
  run.name=stopped train.duration=100000step evaluate.every=never checkpoint.every=5step \
  >job.txt 2>&1 &
job=$!
has_checkpoint() { ls stopped/ckpt/step-* >/dev/null 2>&1; }
wait_until "its first checkpoint" has_checkpoint
kill -TERM "$job"
code=0
wait "$job" || code=$?
[ "$code" -eq 75 ] || fail "a signal ended the hosts with $code, wanted 75: $(cat job.txt)"
expect 0 "$program" ckpt verify stopped
