#!/usr/bin/env bash
# 175 inputs of new users and of hostile ones: each ends with its exit code and a message that holds
# its text, in one line a mistake and without control characters. $1 is the program, the working
# directory an empty scratch.
source "$(dirname "$0")/common.sh"
unset CIFAR10
stated_inputs=$(sed -n '2s/^# \([0-9]*\) inputs.*/\1/p' "$0")
num_inputs=0

# told CODE TEXT ARGUMENT...: the program has to answer so.
told() {
  local got=0
  num_inputs=$((num_inputs + 1))
  answer "${@:3}" || got=$?
  check_answer "$got" "$@"
}
# The same of a program of its own, with the variables of this call.
told_afresh() {
  local got=0
  num_inputs=$((num_inputs + 1))
  "$program" "${@:3}" >stdout 2>stderr </dev/null || got=$?
  check_answer "$got" "$@"
}
# check_answer GOT CODE TEXT ARGUMENT...
check_answer() {
  local got=$1 wanted=$2 text=$3
  shift 3
  [ "$got" -eq "$wanted" ] || fail "'$*' ended with $got, wanted $wanted: $(cat stderr)"
  grep -qF -- "$text" stderr || fail "'$*' lacks '$text': $(cat stderr)"
  ! grep -qP '[\x00-\x08\x0b-\x1f\x7f]' stderr || fail "'$*' prints control characters"
  [ ! -s stdout ] || fail "'$*' failed but printed: $(cat stdout)"
}
# set_to KEY=VALUE TEXT: the tiny recipe is refused with this override, which the message quotes.
set_to() { told 10 "command line: $1: $2" check "$tiny" "$1"; }
# warned TEXT ARGUMENT...: check accepts the tiny recipe with these arguments, and warns.
warned() {
  local text=$1
  shift
  num_inputs=$((num_inputs + 1))
  expect 0 answer check "$tiny" "$@"
  grep -qF -- "warning     $text" stdout || fail "'$*' lacks '$text': $(cat stdout)"
}
# printed TEXT ARGUMENT...: the program succeeds and prints the text.
printed() {
  local text=$1
  shift
  num_inputs=$((num_inputs + 1))
  expect 0 answer "$@"
  grep -qF -- "$text" stdout || fail "'$*' lacks '$text': $(cat stdout)"
}
# file TEXT MESSAGE: a recipe of this text (printf), r.yaml in a folder of its own, is refused.
file() {
  mkdir "recipe_$num_inputs"
  cd "recipe_$num_inputs"
  # shellcheck disable=SC2059
  printf -- "$1" >r.yaml
  told 10 "r.yaml:$2" check r.yaml
  cd ..
}

# Commands and options.
told 2 "did you mean 'train'?" trian r.yaml
told 2 "commands: train" launch
told 2 "did you mean '--json'?" check "$tiny" --jsom
told 2 "did you mean 'shoal train r.yaml'?" r.yaml
told 2 "keys of recipes are set without dashes: train.batch=3" check "$tiny" --train.batch=3
told 2 "keys of recipes are set without dashes: train.batch=3" check "$tiny" --train.batch 3
told 2 "keys of recipes are set without dashes: train.batch=3" check "$tiny" --set train.batch=3
told 2 "keys of recipes are set without dashes: train.batch=3" check "$tiny" --set=train.batch=3
told 2 "keys of recipes are set without dashes: optimizer.lr=1e-3" train "$tiny" --lr 1e-3
told 2 "keys of recipes are set without dashes: optimizer.lr=VALUE" check "$tiny" --learning-rate
told 2 "keys of recipes are set without dashes: train.batch=64" eval run --batch_size=64
told 2 "keys of recipes are set without dashes: run.seed=3" check "$tiny" --seed 3
told 2 "the launcher starts the ranks: launch/run -n 2 train ..." train "$tiny" --ranks 2
told 2 "the launcher starts the ranks: launch/run -n 4 eval ..." eval run -n 4
told 2 "did you mean '--world'?" check "$tiny" --ranks 2
for command in 'predict run x.png' 'score run q.jsonl' 'generate run' 'inspect run'; do
  told 2 "keys of recipes are set without dashes: optimizer.lr=1e-3" $command --lr 1e-3
done
for command in 'predict run x.png' 'score run q.jsonl' 'generate run' doctor; do
  told 2 "the launcher starts the ranks: launch/run -n 2 ${command%% *} ..." $command --ranks 2
done
printed "Shoal trains" help
printed "shoal train [OPTIONS] recipe" help train
told 2 "did you mean 'train'?" help trian
printed "LibTorch" version
printed "LibTorch" -v
told 2 "recipe is required" train
told 2 "must name a file" check ""
told 2 "did you mean 'optimizer'?" keys optimiser
told 2 "unknown backbone 'vot'; did you mean 'vit'?" keys --backbone vot
told 2 "unknown key 'zebra'" keys zebra
printed "unknown key 'dim'; these may be meant:" keys dim
printed "router.k: " keys top_k
printed "model.moe.experts.count   (" keys num_experts
printed "train.batch" keys batch_size
printed "optimizer.lr   (" keys lr
printed "vit/tiny_cifar10.yaml" recipes vit
told 2 "no recipe has 'zebra' in its path or first sentence; see shoal recipes" recipes zebra
told 2 "unknown name 'resnet'" new --backbone resnet
told 2 "--backbone is required" new
told 2 "vit reads images, and text has tokens; --data for vit: cifar, image_folder, " new --backbone vit --data text
told 2 "gpt2 reads tokens, and cifar has images" new --backbone gpt2 --data cifar
told 2 "mixer has no experts; sparse_mlp is a Mixer with experts" new --backbone mixer --experts 4
told 2 "sparse_mlp always has experts; mixer is the dense model" \
  new --backbone sparse_mlp --experts 0
told 2 "no such folder: 'x'" new --backbone vit --path x

# Files that are no recipes.
told 10 "cannot read 'none.yaml': No such file" check none.yaml
told 10 "configs/quickstart.yaml'?" check configs/sparse_mlp/quickstart.yaml
told 10 "did you mean '$root/configs/vit/tiny_cifar10.yaml'?" check "$root/configs/vit/tiny_cifar11.yaml"
mkdir folder
told 10 "cannot read 'folder': Is a directory" check folder
file '' "1:1: empty document"
file '# nothing\n' "1:1: empty document"
file 'train\n' "1:1: expected a mapping of keys, found 'train'"
file '- a\n- b\n' "1:1: expected a mapping of keys, found a list"
file '\xff\xfe\x00a' "1:1: this byte is not UTF-8"
file 'run: {name: "a"}\x00\n' "1:17: control character; text only"
head -c 4096 "$program" >program.yaml
told 10 "is not UTF-8" check program.yaml
file 'run:\n\tname: x\n' "2:1: not YAML: a tab in the indentation; indent with spaces"
file 'run: {name: x\n' "2:1: not YAML: end of map flow not found"
file 'run: &r {name: x}\n' "1:6: run: anchor '&r': anchors are not supported; use \${path.to.key}"
file 'run: {seed: 1}\nrun: {seed: 2}\n' "2:1: run: duplicate key, first given in line 1"
file 'run: {seed: 1, seed: 2}\n' "1:16: run.seed: duplicate key, first given in line 1"
file 'run: {seed: 1}\n---\nrun: {seed: 2}\n' "2:1: text after the first document"
file 'include: none.yaml\n' "1:10: include: cannot read 'none.yaml': No such file"
file 'include: r.yaml\n' "1:10: include: include cycle: r.yaml -> r.yaml"
file 'include: [3, {a: b}]\n' "1:14: include: expected a path without references"
file '\xef\xbb\xbfrun: {sead: 1}\r\n' "1:7: run.sead: unknown key; did you mean 'seed'?"
file 'task: classify\n' "1:7: task: expected a mapping of keys, found 'classify'; write {name: classify}"
file 'model: vit\n' "1:8: model: expected a mapping of keys, found 'vit'; write {backbone: vit}"
file 'data: imagenet\n' "1:7: data: expected a mapping of keys, found 'imagenet'; choose a data source as {source: NAME}"
file 'data: {source: cifar, path: "a\\eb"}\n' "1:29: data.path: a path has no control characters"
file 'run: {name: "a\\nb"}\n' "1:13: run.name: a folder's name has no control characters"
file 'data: {source: cifar, train: {files: "[a, b]"}}\n' "1:38: data.train.files: expected a list, found the quoted text \"[a, b]\"; leave the quotes out"

# Keys: other programs' names, other levels, other members.
set_to model.dim=3 "unknown key; did you mean 'width'?"
set_to model.patch_size=3 "unknown key; did you mean 'patch'?"
set_to model.num_layers=3 "unknown key; did you mean 'dense_blocks'?"
set_to model.sparse.channel_moe.num_experts=3 "unknown key; did you mean 'model.sparse.channel_moe.experts.count'?"
set_to model.sparse.channel_moe.top_k=3 "unknown key; did you mean 'model.sparse.channel_moe.router.k'?"
set_to model.sparse.channel_moe.router.top_k=3 "unknown key; did you mean 'k'?"
set_to train.batch_size=3 "unknown key; did you mean 'batch'?"
set_to batch_size=3 "unknown key; did you mean 'train.batch'?"
set_to train.lr=3 "unknown key; did you mean 'optimizer.lr'?"
set_to learning_rate=3 "unknown key; did you mean 'optimizer.lr'?"
set_to train.epochs=3 "unknown key; did you mean 'duration'?"
set_to model.moe=none "unknown key of backbone 'sparse_mlp'; it belongs to convnext, gpt2, hspmn, vit"
set_to model.dropout=0.1 "unknown key of backbone 'sparse_mlp'; it belongs to gpt2"
set_to model.heads=2 "unknown key of backbone 'sparse_mlp'; it belongs to adaptive_attention, gpt2, hspmn, vit"
set_to optimizer=sgd "expected a mapping of keys, found 'sgd'; write optimizer.name=sgd"
set_to optimizer.name=adam "unknown optimizer 'adam'; one of: adamw, lamb, sgd; did you mean 'adamw'?"
sed 's/name: lamb,/name: lamb, trust_clip: true,/' "$tiny" >lamb.yaml
told 10 "unknown key of optimizer 'sgd'; it belongs to lamb; drop it with ~optimizer.trust_clip" \
  check lamb.yaml optimizer.name=sgd
told 10 "command line: ~train.bach: unknown key: there is nothing to remove; did you mean 'train.batch'?" \
  check "$tiny" "~train.bach"

set_to dim=3 "unknown key; did you mean 'model.width'?"
set_to patch_size=3 "unknown key; did you mean 'model.patch'?"
set_to num_experts=3 "unknown key; did you mean 'model.sparse.token_moe.experts.count'?"
set_to top_k=3 "unknown key; did you mean 'model.sparse.token_moe.router.k'?"
set_to lr=3 "unknown key; did you mean 'optimizer.lr'?"
set_to data.lr=3 "unknown key; did you mean 'optimizer.lr'?"
set_to schedule.lr=3 "unknown key; did you mean 'optimizer.lr'?"
file 'dim: 3\n' "1:1: dim: unknown key; 'model.width' belongs to backbone"
file 'lr: 3\n' "1:1: lr: unknown key; did you mean 'optimizer.lr'?"
set_to moe=8 "unknown key; 'model.moe' belongs to backbone convnext, gpt2, hspmn, vit"
told 10 "command line: moe.experts.count=8: moe: unknown key; 'model.moe' belongs to backbone" \
  check "$tiny" moe.experts.count=8
file 'moe: {experts: {count: 8}}\n' "1:1: moe: unknown key; 'model.moe' belongs to backbone"
told 10 "moe: unknown key; did you mean 'model.moe'?" \
  check "$root/configs/vit/tiny_cifar10.yaml" moe.experts.count=8
told 10 "data.moe: unknown key; did you mean 'model.moe'?" \
  check "$root/configs/gpt2/tiny_wikitext2_bytes.yaml" data.moe.experts.count=8
told 10 "model.sparse: unknown key of backbone 'vit'; it belongs to sparse_mlp; drop it with ~model.sparse" \
  check "$tiny" model.backbone=vit
told 10 "data.train.files' belongs to data source" check "$root/configs/gpt2/tiny_wikitext2_bytes.yaml" \
  data.source=shapes
told 10 "; drop it with ~data.train.files" check "$root/configs/gpt2/tiny_wikitext2_bytes.yaml" \
  data.source=shapes

# Values.
set_to model.sparse.channel_moe.experts=8 "expected a mapping of keys, found '8'; write model.sparse.channel_moe.experts.count=8"
told 10 "; write 'model.sparse.channel_moe.losses=[{name: importance}]'" \
  check "$tiny" "model.sparse.channel_moe.losses=[importance]"
set_to run.device=gpu "expected one of: auto, cpu, cuda, found 'gpu'; did you mean 'cuda'?"
set_to train.batch=abc "expected an integer, found 'abc'"
set_to train.batch= "expected an integer, found nothing: the value is empty"
set_to train.batch=3.5 "expected an integer, found '3.5'"
set_to train.batch=[1] "expected an integer, found a list"
set_to train.batch=0 "must be at least 1 and at most 1073741824, found '0'"
set_to train.batch=99999999999999999999 "the integer '99999999999999999999' is out of range (64 bits)"
set_to train.batch=010 "expected an integer, found '010'; a leading zero could mean octal, leave it out"
set_to train.batch.x=3 "train.batch: is '32', so it has no keys to override"
set_to optimizer.lr=.nan "expected a finite number, found '.nan'"
set_to optimizer.lr=1e999 "the number '1e999' is out of range"
set_to optimizer.lr=-1 "must be above 0, found '-1'"
set_to data.augment.flip=yes "expected true or false, found 'yes'"
set_to train.precision=fp16 "expected one of: float32, float64, bfloat16, found 'fp16'"
set_to run.name=../x "'../x' does not name a folder below run.root"
set_to 'run.name=exp #3' "'#3' is a comment in YAML and would be left out"
set_to 'run.name=a#b "c" #d' "'#d' is a comment in YAML and would be left out; quote the value: run.name=\"'a#b"
set_to run.root=@a "not YAML: unknown token; quote the value: run.root='\"@a\"'"
set_to run.root=%a "expected text, found nothing: the value is empty; quote the value: run.root='\"%a\"'"
set_to 'run.root=*a' "not YAML: the referenced anchor is not defined; quote the value: run.root='\"*a\"'"
set_to 'run.root=!a' "expected text, found nothing: the value is empty; quote the value: run.root='\"!a\"'"
set_to 'run.root=[x]' "expected text, found a list; quote the value: run.root='\"[x]\"'"
set_to 'run.root=x: y' "expected text, found a mapping; quote the value: run.root='\"x: y\"'"
set_to 'run.name=x: y' "expected text, found a mapping; quote the value: run.name='\"x: y\"'"
set_to run.name= "expected text, found nothing: the value is empty"
set_to run.root= "expected text, found nothing: the value is empty"
set_to 'run.root=""' "the text is empty"
set_to 'run.root=~' "'~' alone is null in YAML; write ~/ for the home folder"
set_to 'run.root=~user/x' "only ~/ is expanded; write ./~user for a folder of that name"
told 10 "run.name=a b: the value has a line end, which YAML would make a blank" \
  check "$tiny" run.name=$'a\nb'
told 10 "control character; text only" check "$tiny" run.name=$'a\x01b'
told 10 "run.name=a b: a folder's name has no invisible characters, and this one has U+202E" \
  check "$tiny" run.name=$'a\u202eb'
told 10 "data.path: the text is empty" check "$tiny" 'data={source: cifar, path: ""}'
told 10 'data.train.files="[a, b]": expected a list, found the quoted text "[a, b]"; leave the quotes out' \
  check "$root/configs/gpt2/tiny_wikitext2_bytes.yaml" 'data.train.files="[a, b]"'
file 'data: {source: cifar, path: ""}\n' "1:29: data.path: the text is empty"
file 'data: {source: cifar, path: ~}\n' "1:29: data.path: '~' alone is null in YAML; write ~/ for the home folder, or auto"
set_to include=x.yaml "can only be given in a file"
told 10 "command line: train.batch: is not an override; write key=value or ~key" check "$tiny" train.batch

# Durations.
set_to train.duration=10 "expected a duration, found '10', which needs a unit: 10step, 10ep, 10tok, 10s, 10min, 10h, 10d"
set_to train.duration=-5step "expected a duration, found '-5step', which is negative"
set_to train.duration=1e30step "expected a duration, found '1e30step', which is too large"
set_to 'train.duration=5 parsecs' "expected a duration, found '5 parsecs', which has no unit that is known (step, ep, tok, s, min, h or d)"
set_to 'train.duration=5 epochs' "expected a duration, found '5 epochs', which has no unit that is known (step, ep, tok, s, min, h or d); did you mean '5ep'?"
set_to train.duration=0ep "must be above 0, found '0ep'"
set_to schedule.warmup=0.05 "expected a duration, found '0.05', which needs a unit: 0.05ep, 5%"
set_to checkpoint.every=5m "expected a duration, found '5m', which has no unit that is known (step, ep, tok, s, min, h, d or %); did you mean '5min'?"
set_to train.log_every=20 "expected a duration, found '20', which needs a unit: 20step, 20ep, 20tok, 20s, 20min, 20h, 20d"
set_to train.duration=5% "expected a duration in step, ep, tok, s, min, h or d, found '5%'"
set_to evaluate.every=none "expected a duration"
told 10 "train.patience=3: counts evaluations, and evaluate.every is never" check "$tiny" train.patience=3 \
  evaluate.every=never
set_to checkpoint.every=1Ktok "1Ktok cannot be counted in steps: the data has no tokens"

# Paths and the environment, where values are used.
told 10 "data.path: needs an environment variable that is not set: '\${env:CIFAR10}'" \
  train "$root/configs/vit/tiny_cifar10.yaml"
HOME=/nowhere/home told_afresh 13 "/nowhere/home/cifar/data_batch_1.bin" \
  train "$root/configs/vit/tiny_cifar10.yaml" 'data.path=~/cifar'
HOME='' told_afresh 10 "'~' stands for HOME, which is not set" \
  train "$root/configs/vit/tiny_cifar10.yaml" 'data.path=~/cifar'
HOME=$PWD "$program" check "$tiny" 'run.root=~/runs' >/dev/null || fail "a path with ~"

# What is accepted, with a warning.
warned "model.sparse.channel_moe.capacity.factor: no effect, as capacity.mode is dropless" \
  model.sparse.channel_moe.capacity.mode=dropless
warned "checkpoint.keep_best: no effect, as evaluate.every is never" evaluate.every=never \
  checkpoint.keep_best=2
warned "schedule.warmup: 41step lies at or behind the end of the training of 40step" schedule.warmup=41step
warned "schedule.warmup: 150% lies at or behind the end of the training" schedule.warmup=150%
warned "train.group: a micro-step has 4 routing groups of 4 samples, so that 4 of the 8 ranks get no" \
  --world 8
warned "blocks.1.moe_c: nothing balances the load of the top_k router" \
  model.sparse.channel_moe.losses=[]
warned 'data.path: ${env:NOT_SET} is not set' model.patch=4 \
  'data={source: cifar, path: "${env:NOT_SET}"}'
warned "data: /nowhere/cifar: no such folder" model.patch=4 \
  'data={source: cifar, path: /nowhere/cifar}'
warned "2 ranks of 4096 threads on " run.threads=4096

# More than any machine has.
told 11 "train.batch: a rank would take about" train "$tiny" parallel.expert_ranks=1 \
  train.batch=67108864 "data={source: shapes, image_size: 64, classes: 4}"
[ ! -e runs ] || fail "a refused input left a folder: $(ls -R runs)"

[ "$num_inputs" = "$stated_inputs" ] || fail "$num_inputs inputs, and the head states $stated_inputs"
