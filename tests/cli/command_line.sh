#!/usr/bin/env bash
# Wrong commands and options end with 2 and the nearest right word; wrong recipes with 10, in one
# copy however many ranks there are. $1 is the program, the working directory an empty scratch.
source "$(dirname "$0")/common.sh"

# expect CODE TEXT ARGUMENT...: the exit code, and a text that stderr must hold.
expect() {
  local wanted=$1 text=$2 got=0
  shift 2
  if [ -z "${afresh:-}" ]; then answer "$@" || got=$?; else "$program" "$@" >stdout 2>stderr || got=$?; fi
  [ "$got" -eq "$wanted" ] || fail "'$*' ended with $got, wanted $wanted: $(cat stderr)"
  grep -qF -- "$text" stderr || fail "'$*' lacks '$text': $(cat stderr)"
  [ ! -s stdout ] || fail "'$*' failed but printed: $(cat stdout)"
}

expect 2 "did you mean 'check'?" chek r.yaml
expect 2 "did you mean '--world'?" check r.yaml --wrold 3
expect 2 "recipe is required" check
expect 2 "train.duration=3ep" train r.yaml --epochs 3
expect 2 "train.duration=3step" train r.yaml --max-steps 3
expect 2 "run.on_existing=resume" train r.yaml --resume
expect 10 "did you mean" check quickstrat
# A shipped recipe has a name; a file here that may be meant is not passed over.
expect 10 "train.steps=3: unknown key" check quickstart train.steps=3
expect 10 "train.steps=3: unknown key" check gpt2/s train.steps=3
touch quickstart.yaml
expect 10 "did you mean 'quickstart.yaml'" check quickstart
rm quickstart.yaml
expect 2 "--world: must be at least 1 and at most 1e6, found '0'" check r.yaml --world 0
expect 2 "did you mean 'verify'?" ckpt verfy run
expect 2 "did you mean '--json'?" ckpt verify run --jsn
expect 2 "did you mean 'train.batch'?" keys train.bach
expect 2 "commands: train" zebra
expect 2 "error[E2] unknown command 'zebra'" zebra

# Numbers of options are read as strictly as those of recipes.
none="generate run --prompt x"
expect 2 "--temperature: expected a finite number, found 'nan'; allowed: at least 0 and at most 1e6" \
  $none --temperature nan
expect 2 "--temperature: must be at least 0 and at most 1e6, found '-1'" $none --temperature -1
expect 2 "--top-p: expected a finite number, found 'nan'; allowed: above 0 and at most 1" \
  $none --top-p nan
expect 2 "--seed: the integer '99999999999999999999' is out of range (64 bits); allowed: at least 0" \
  $none --seed 99999999999999999999
expect 2 "--seed: expected an integer, found '010'; a leading zero could mean octal" $none --seed 010
expect 2 "--top-k: must be at least 0, found '-1'" $none --top-k=-1
expect 2 "--tokens: expected an integer, found '0x10'" $none --tokens 0x10
expect 2 "--samples: expected an integer, found '1.5'" $none --samples 1.5
expect 2 "--count: must be at least 1 and at most 1000, found '0'" eval run --images x --count 0
expect 2 "--images: expected an integer, found 'ten'" inspect run --expert-maps x --images ten
expect 2 "--experts: expected an integer, found '08'" new --backbone vit --experts 08
expect 2 "--shard-size: expected an integer, found '010'" data pack x --out y --shard-size 010MB

# What pictures of gates need and exclude.
expect 2 "must name a file in .html" inspect run --gates gates.txt
expect 2 "--tensors excludes --gates" inspect run --gates gates.html --tensors
expect 2 "--samples excludes --prompt" inspect run --gates gates.html --prompt x --samples 3
expect 2 "--prompt requires --gates" inspect run --prompt x
expect 2 "overrides requires --activation-maps, --expert-maps or --gates" inspect run data.path=x
expect 2 "--images requires --activation-maps or --expert-maps" inspect run --images 3
expect 2 "--activation-maps excludes --expert-maps" inspect run --expert-maps a --activation-maps b
expect 2 "must name a file in .html" inspect run --sparsity -o page.txt
expect 2 "--output requires --sparsity" inspect run -o page.html
expect 2 "--tensors excludes --sparsity" inspect run --sparsity --tensors
expect 2 "overrides requires --activation-maps" inspect run --sparsity data.path=x
expect 2 "out is required" fold run
afresh=yes OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 \
  expect 2 "inspect runs in one process, not in 2" inspect run --gates gates.html

# A key may be called as a command is.
answer keys train && grep -q '^train.batch$' stdout || fail "keys train does not document the section"
expect 2 "unknown key 'check'" keys check
expect 10 "'show'" check show

answer --help && grep -q 'Subcommands' stdout || fail "--help prints no subcommands"
for command in train eval check show keys recipes new inspect ckpt import export fold doctor; do
  answer "$command" --help || fail "$command --help"
done
answer check --help && grep -q 'Examples' stdout || fail "check --help has no examples"
"$program" --version >version
for line in 'shoal [0-9]+\.[0-9]+\.[0-9]+' 'commit ([0-9a-f]{12}(-dirty)?|unknown)' 'LibTorch [0-9.]+' \
  '(Open )?MPI [0-9.]+'; do
  grep -Eqx "$line" version || fail "--version lacks '$line': $(cat version)"
done

# What cannot be printed is no success.
code=0
"$program" keys train >/dev/full 2>stderr || code=$?
[ "$code" -eq 21 ] || fail "a full standard output ended with $code, wanted 21: $(cat stderr)"
grep -q 'standard output' stderr || fail "a full standard output is not named: $(cat stderr)"
for option in --version --help; do
  code=0
  "$program" $option >/dev/full 2>stderr || code=$?
  [ "$code" -eq 21 ] || fail "$option into a full standard output ended with $code, wanted 21"
done

cat >bad.yaml <<'END'
train: {duration: 10, bach: 8}
END
expect 10 "bad.yaml:1:19: train.duration: expected a duration" check bad.yaml
expect 10 "bad.yaml:1:23: train.bach: unknown key; did you mean 'batch'?" check bad.yaml
! grep -q 'train.batch: required' stderr || fail "a typo has two lines: $(cat stderr)"
echo 'train: {duration: 10ep}' >short.yaml
expect 10 "short.yaml:1:1: train.batch: required key is missing" show short.yaml
expect 10 "found 'none'; or did you mean 'never'?" check short.yaml evaluate.every=none
expect 10 "none.yaml" check none.yaml
mkfifo pipe.yaml
expect 10 "'pipe.yaml' is a named pipe" check pipe.yaml
"$program" check <(cat "$tiny") >/dev/null || fail "no recipe from <(...)"

# A recipe is refused in one second, before anything is written. Counted in processor time, which
# other programs on the machine hardly stretch.
sed 's/batch:/bach:/' "$tiny" >misspelt.yaml
before=$(ls -A)
TIMEFORMAT='%U %S' afresh=yes
for command in check train; do
  { time expect 10 "misspelt.yaml:31:27: train.bach: unknown key" "$command" misspelt.yaml 2>&3
  } 3>&2 2>took
  awk '{ exit !($1 + $2 <= 1) }' took || fail "'$command misspelt.yaml' took $(cat took) s"
done
rm took
afresh=
[ "$(ls -A)" = "$before" ] || fail "a refused recipe wrote something: $(ls -A)"

if command -v mpirun >/dev/null; then
  # once CODE TEXT ARGUMENT...: three ranks fail alike, with one copy of the text: the first to fail
  # ends the others before they print theirs.
  once() {
    local wanted=$1 text=$2 got=0
    shift 2
    mpirun --allow-run-as-root --oversubscribe -np 3 "$program" "$@" >copies 2>&1 || got=$?
    [ "$got" -eq "$wanted" ] || fail "mpirun '$*' ended with $got: $(cat copies)"
    [ "$(grep -c -- "$text" copies)" -eq 1 ] || fail "'$*': not one copy: $(cat copies)"
  }
  once 10 'train.duration' check bad.yaml
  once 10 'train.duration' train bad.yaml
  before=$(ls -A)
  once 10 'train.bach' train misspelt.yaml
  [ "$(ls -A)" = "$before" ] || fail "ranks that refuse a recipe wrote something: $(ls -A)"
  once 2 'recipe is required' train
fi
