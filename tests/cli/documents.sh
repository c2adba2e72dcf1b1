#!/usr/bin/env bash
# Every command of README.md and of the pages in docs/ runs here, in their order, on data made for it
# and for two steps. What cannot run is listed below with the reason, and checked as far as it can be.
# Options and recipes that the text names exist, and links lead somewhere.
source "$(dirname "$0")/common.sh"
pages=("$root/README.md" "$root"/docs/*.md)
expect 0 "$root/tests/documents.py" links "${pages[@]}" "$root"/{configs,benchmarks}/README.md
expect 0 "$root/tests/documents.py" words 1100 "$root/README.md"
expect 0 "$root/tests/documents.py" options "$program" "${pages[@]}"
"$root/tests/documents.py" commands "${pages[@]}" >commands.txt
[ "$(wc -l <commands.txt)" -gt 30 ] || fail "only $(wc -l <commands.txt) commands in the pages"

# A folder as a checkout is: scripts, recipes, the program.
mkdir -p bin build/release
ln -s "$root/launch" "$root/configs" .
ln -s "$program" build/release/shoal
ln -s "$program" bin/shoal
export PATH=$PWD/bin:$PATH SHOAL_PROGRAM=$program XDG_CACHE_HOME=$PWD/cache
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1

# What the pages have under /data or FOLDER: CIFAR's files, a folder of images.
python3 - <<'END'
import math, os, struct, zlib
os.makedirs("data/cifar-10-batches-bin")
for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
    with open(f"data/cifar-10-batches-bin/{name}.bin", "wb") as file:
        for i in range(80):
            file.write(bytes([i % 10]))
            file.write(bytes(int(127 + 60 * math.sin(i + c + x / 9) + 60 * math.cos(2 * i + y / 7))
                             for c in range(3) for y in range(32) for x in range(32)))
def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
def write_png(path, side, pixel):
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
                   + chunk(b"IDAT", zlib.compress((b"\0" + pixel * side) * side)) + chunk(b"IEND", b""))
for animal in ("cat", "dog"):
    os.makedirs(f"data/imagenet/train/{animal}")
    write_png(f"data/imagenet/train/{animal}/a.png", 4, animal.encode())
    os.makedirs(f"data/photographs/{animal}")
    for i in range(40):  # not named .png, which a page looks for everywhere
        write_png(f"data/photographs/{animal}/{i}.jpg", 16, bytes(c + i for c in animal.encode()))
END
cp -r data/imagenet/{train,val}
# What they have beside: a recipe, text, runs of language models, weights of other programs.
"$program" show "$tiny" --minimal model.sparse.{token,channel}_moe.experts.count=8 >RECIPE.yaml
mkdir text
for _ in $(seq 60); do echo 'the cat sat on the mat. the dog ran. é'; done | tee text/train.txt >text/valid.txt
echo '{"id": 7, "context": "the cat", "continuation": " sat"}' >questions.jsonl
small=(configs/gpt2/tiny_wikitext2_bytes.yaml data.path=text 'data.train.files=[train.txt]'
  'data.valid.files=[valid.txt]' data.sequence=32 train.batch=8 train.duration=2step)
# prepare NAME COMMAND...: what the pages have beside, two at a time on the two cores of this test.
prepare() {
  local name=$1
  shift
  "$@" >"prepare_$name" 2>&1 || fail "'$*' ended with $?: $(cat "prepare_$name")"
}
{
  prepare lm shoal train "${small[@]}" run.name=lm
  prepare lm shoal export runs/lm --to hf gpt2
  prepare moe shoal train configs/gpt2/tiny_wikitext2_bytes_moe.yaml "${small[@]:1}" run.name=moe \
    parallel.expert_ranks=1
} &
prepare published shoal train configs/denoise/cifar10.yaml data.path=data/cifar-10-batches-bin \
  run.name=published train.batch=8 train.duration=1step
prepare published shoal export runs/published --to adaptive_attention published
mv published/model.safetensors denoiser.safetensors
ln -s published runs/denoise
mkdir photographs noisy_images
cp data/imagenet/train/cat/a.png photograph.jpg
cp photograph.jpg photographs
cp photograph.jpg noisy_images
echo '[MAX 2 [MIN 7 3 ] 9 ]' >reviews.txt
prepare reviews shoal train configs/hspmn/tiny_listops.yaml run.name=reviews train.batch=8 \
  train.duration=1step evaluate.every=never
wait $! || exit 1

# run_as_written WHERE COMMAND: with the names of this folder in place of the page's. A page's
# commands write to `output_NAME` and count in `ran_NAME`.
run_as_written() {
  local command=${2//\/data\//$PWD/data/} short='train.duration=4step evaluate.every=2step'
  command=${command//=FOLDER/=$PWD/data/cifar-10-batches-bin}
  case $command in
    # Over ssh to machines that are not here: tests/cli/two_hosts.sh has such.
    launch/mpirun.sh*) command=${command/hosts.txt/hosts.txt --cores 1 --dry-run} ;;
    # Long trainings, cut short; the last word wins.
    'for '*) command=$(sed -E "s/shoal train [^;]*/& $short data.valid.samples=64/" <<<"$command") ;;
    *' train '*) command="$command $short" ;;
  esac
  [[ $command != *_finetune.yaml* ]] || command+=" data.train.samples=80"  # of 4000
  bash -ec "$command" >"output_$pages_name" 2>&1 </dev/null ||
    fail "$1: '$2', as '$command', ended with $?: $(cat "output_$pages_name")"
  echo "$command" >>"ran_$pages_name"
}

run_line() {
  local where=$1 command=$2
  echo "$where: $command"
  case $command in
    # They install packages and build: the tests of launch/setup, and whoever reads this, ran them.
    launch/quickstart* | launch/test*) run_as_written "$where" "${command%% *} --help" ;;
    # They install: tests/cli/{setup,install}.sh and tests/packages/{fresh_debian,wheel}.sh do; CTest `site` builds it.
    launch/setup* | launch/site* | 'cmake --install'* | cpack* | apt* | podman*) ;;
    launch/package* | 'python3 -m venv'* | 'pip install'* | shoal-run*) ;;
    # Needs a Python with torch: tests/cli/pickle_to_safetensors.sh. The weights are made above.
    launch/pickle_to_safetensors*) [ -e denoiser.safetensors ] ;;
    # Needs Slurm, for which tests/cli/slurm.sh has stand-ins: its command is checked.
    sbatch*) run_as_written "$where" "shoal check ${command#*.sbatch train } --world 8" ;;
    'cat hosts.txt') sed -n '/^\$ cat hosts.txt/,/^\$ launch/p' "$root/${where%:*}" | sed '1d;$d' >hosts.txt ;;
    *' train RECIPE.yaml'*)
      run_as_written "$where" "shoal check RECIPE.yaml ${command##*RECIPE.yaml} --world 8"
      run_as_written "$where" "$command" ;;
    *) run_as_written "$where" "$command" ;;
  esac
}

# run_pages NAME: the commands of commands_NAME, in their order.
run_pages() {
  local pages_name=$1 where command
  while IFS=$'\t' read -r where command; do run_line "$where" "$command"; done <"commands_$1"
}
# Pages use nothing of each other, so half of the work runs beside the other.
grep '^docs/recipes.md:' commands.txt >commands_recipes
grep -v '^docs/recipes.md:' commands.txt >commands_others
run_pages recipes &
run_pages others
wait $! || exit 1
num_ran=$(cat ran_recipes ran_others | wc -l)
[ "$num_ran" -gt 30 ] || fail "only $num_ran commands ran"
for file in loads.svg maps gates.html sparsity.html sweep.html tuned_hf/model.safetensors; do
  [ -e "$file" ] || fail "no command wrote $file"
done
grep -qF 'image_size: 16 ' own.yaml || fail "not the size of the images: $(cat own.yaml)"
[ -e runs/own/confusion.json ] || fail 'eval --confusion wrote no confusion.json'
# What a page shows of check's answer is what it answers.
shoal check first.yaml --world 2 >checked
while read -r line; do
  grep -qF -- "$line" checked || fail "docs/first_model.md shows '$line': $(cat checked)"
done < <(sed -n '/^```text/,/^```$/p' "$root/docs/first_model.md" | grep -v '^```')
