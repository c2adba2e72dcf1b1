#!/usr/bin/env bash
# Benchmarks and their Python peers: one that cannot run is left out for the reason it has, and one
# that fails ends the benchmark with its cause.
source "$(dirname "$0")/common.sh"
bench=$(dirname "$program")/benchmarks/expert_bank_bench
[ -x "$bench" ] || fail "$bench is not there: build the target benchmarks"

# peer LINE...: a stand-in for python3, of these lines.
peer() {
  printf '%s\n' '#!/usr/bin/env bash' "$@" >python
  chmod +x python
}
# The measurements that follow are not waited for: --shape names none, which ends the benchmark.
bench() { "$bench" --python "$PWD/python" --shape none; }

peer 'echo "ImportError: cannot import name grouped_mm" >&2' 'exit 1'
expect 1 bench
grep -q 'cannot import name grouped_mm' output || fail "its message is lost: $(cat output)"
grep -q "peers/expert_bank.py: .* ended with exit code 1 instead of answering 'ready'" output ||
  fail "the cause is not named: $(cat output)"
! grep -q 'has no PyTorch' output || fail "PyTorch is blamed: $(cat output)"
peer 'kill -KILL $$'
expect 1 bench
grep -q "ended with signal 9 instead" output || fail "the signal is not named: $(cat output)"
peer 'echo welcome' 'exit 3'
expect 1 bench
grep -q "answered 'welcome' and ended with exit code 3" output || fail "$(cat output)"

peer 'exec python3 -E -S "$@"'  # without the folders that packages are installed to
expect 1 bench
grep -q "peers/expert_bank.py: absent, since '.*' has no PyTorch" output || fail "$(cat output)"
rm python
expect 1 bench
grep -q "peers/expert_bank.py: absent, since there is no '$PWD/python'" output || fail "$(cat output)"
