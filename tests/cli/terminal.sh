#!/usr/bin/env bash
# The live bar on terminals of 60, 80 and 120 columns, of one process and of ranks under launch/run:
# it never wraps, step and time left are always on it, and the lines of logged steps stay above it.
source "$(dirname "$0")/common.sh"

# on_terminal COLUMNS COMMAND...: on a pseudo-terminal of that width; its output goes to ./screen.
# $press_at, if set: Ctrl-C is pressed once this is on it.
on_terminal() {
  PRESS_AT=${press_at:-} python3 - "$@" <<'END'
import fcntl, os, pty, struct, sys, termios
press_at = os.environ["PRESS_AT"].encode()
child, terminal = pty.fork()
if child == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, int(sys.argv[1]), 0, 0))
    os.execvp(sys.argv[2], sys.argv[2:])
screen = b""
while True:
    try:
        part = os.read(terminal, 65536)
    except OSError:  # the other end is closed
        break
    if not part:
        break
    screen += part
    if press_at and press_at in screen:
        os.write(terminal, b"\x03")
        press_at = b""
open("screen", "wb").write(screen)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
END
}

# check_bars COLUMNS WANTED UNWANTED: prints how long the longest one is.
check_bars() {
  python3 - "$@" <<'END'
import re, sys
columns, wanted, unwanted = int(sys.argv[1]), sys.argv[2], sys.argv[3]
screen = open("screen", newline="").read()
bars = re.findall(r"(?:^|\r|\n|\x1b\[K)([^\r\n\x1b]*step \d+/10 [^\r\n\x1b]*)\r(?=\x1b)", screen)
drawn = len(bars)
bars = [bar for bar in bars if "evaluation " not in bar]  # drawn where it takes longer than a second
bars = list(dict.fromkeys(bars))  # a line above the bar draws it again
assert len(bars) == 10, (len(bars), screen)
for number, bar in enumerate(bars, 1):
    assert len(bar) < columns, (len(bar), bar)
    assert f"step {number}/10  loss " in bar and re.search(r"  eta [0-9.hms]+$", bar), bar
    assert wanted in bar and (not unwanted or unwanted not in bar), bar
lines = re.findall(r"(?:\n|\x1b\[K)(step \d+/10  loss [^\r\n\x1b]*  eta [^ \r]*)\r\n", screen)
assert len(lines) == 10 and max(map(len, lines)) < columns, lines
assert screen.rfind("[K") > screen.rfind("step 10/10 "), screen  # no bar stays behind the last line
assert screen.count("\x1b[K") == drawn, screen  # each is wiped before the next line, the last one too
END
}

short=("$tiny" run.root=. train.duration=10step train.log_every=1step run.threads=1)
for columns in 60 80 120; do
  case $columns in 60) wanted='loss ' unwanted='mem ' ;; 80) wanted='img/s' unwanted='a2a' ;; *) wanted='|g| ' unwanted='' ;; esac
  expect 0 on_terminal $columns "$program" train "${short[@]}" run.name=alone$columns \
    parallel.expert_ranks=1
  check_bars $columns "$wanted" "$unwanted" || fail "$columns columns, one process"
  SHOAL_PROGRAM=$program expect 0 on_terminal $columns "$root/launch/run" -n 2 train "${short[@]}" \
    run.name=ranks$columns parallel.expert_ranks=2
  check_bars $columns "$wanted" "$unwanted" || fail "$columns columns, launch/run"
done

# Into a file launch/run writes lines, whatever an outer terminal has told.
SHOAL_COLUMNS=80 SHOAL_PROGRAM=$program expect 0 "$root/launch/run" -n 2 train "${short[@]}" \
  run.name=file parallel.expert_ranks=2
[ "$(grep -c '^step [0-9]*/10 .* eta ' output)" -eq 10 ] || fail "no line a step: $(cat output)"
! grep -q $'\x1b' output || fail "escape codes in a file: $(cat output)"

# The rank's log has the same lines.
[ "$(grep -c 'debug: step [0-9]*/10 ' file/log/rank-00000.log)" -eq 10 ] ||
  fail "the log lacks steps: $(cat file/log/rank-00000.log)"
grep -q 'debug: step 10  evaluation: ' file/log/rank-00000.log || fail "the log lacks the evaluation"

# Between logged steps, and while it evaluates, the bar moves once a second; a Ctrl-C is answered at
# once, on a line of its own.
endless=("$tiny" run.root=. train.duration=1000000step train.log_every=1000000step \
  evaluate.every=never checkpoint.every=never run.threads=1)
expect 75 on_terminal 80 "$program" train "${endless[@]}" run.name=quiet parallel.expert_ranks=1 \
  run.stop_after=4s
python3 - <<'END' || fail "the bar stands still"
import re
screen = open("screen", newline="").read()
steps = [int(step) for step in re.findall(r"\[-{20}\]  step (\d+)/1000000  eta [0-9hms]+\r", screen)]
assert 2 <= len(steps) <= 5 and steps == sorted(set(steps)), (steps, screen)
END
expect 0 on_terminal 80 "$program" eval quiet data.valid.samples=40000
grep -Eq $'evaluation [1-9][0-9]?%\r\033\\[K' screen || fail "eval shows no progress: $(cat screen)"
press_at='/1000000  eta '
expect 75 on_terminal 80 "$program" train "${endless[@]}" run.name=pressed parallel.expert_ranks=1
grep -q $'^stopping: saves after this step; a second INT or TERM exits immediately\r$' screen ||
  fail "Ctrl-C is not answered: $(cat screen)"
grep -q 'stopped by Ctrl-C: saving, then leaving' screen || fail "the signal has no name: $(cat screen)"
SHOAL_PROGRAM=$program expect 75 on_terminal 80 "$root/launch/run" -n 2 train "${endless[@]}" \
  run.name=pressed2 parallel.expert_ranks=2
grep -q $'^run: Ctrl-C: the ranks save and end; once more ends them at once\r$' screen ||
  fail "Ctrl-C is not answered: $(cat screen)"
grep -q 'stopped by a signal: saving' screen || fail "no word of the ranks: $(cat screen)"
press_at='evaluation '
SHOAL_PROGRAM=$program expect 143 on_terminal 80 "$root/launch/run" -n 2 eval quiet \
  data.valid.samples=1000000
grep -q $'^run: Ctrl-C: eval is ended\r$' screen || fail "no word of the end: $(cat screen)"
