#!/usr/bin/env bash
# Packs a build by benchmarks/gpu/pack and runs it where there is no GPU: on a fresh Debian 12 that has Python
# and PyTorch's wheel with CUDA's libraries, but no checkout, MPI, other packages, CUDA toolkit or network.
# Rows that need no GPU pass, all others leave what they said, and so does a row that is made to fail.
#
# Usage: gpu_bundle.sh BUILD [MIRROR]      in an empty folder, as root, with debootstrap
#   BUILD    a build folder, as build/release, with everything built; CIFAR10 and WIKITEXT2 name the data
source "$(dirname "${BASH_SOURCE[0]}")/debian.sh"
cache() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }

step "packing $build"
if CIFAR10='' "$root/benchmarks/gpu/pack" "$build" packed 2>refused.txt; then fail "packed without data"; fi
grep -q 'CIFAR10 is not set' refused.txt || fail "no word on missing data: $(cat refused.txt)"
"$root/benchmarks/gpu/pack" "$build" packed
[ "$(cd packed && echo *)" = 'bundle.tar.xz run' ] || fail "packed: $(ls packed)"

step "a fresh Debian 12 with PyTorch"
fresh_debian --include=python3
site=$debian/usr/local/lib/python3.11/dist-packages wheel=$(dirname "$(cache SHOAL_TORCH_ROOT)")
mkdir -p "$site/nvidia/cu13/lib"
# Links take no space.
put() { cp -rl "$@" 2>/dev/null || cp -r "$@"; }
put "$wheel"/torch "$wheel"/torch-*.dist-info "$site/"
put "$wheel"/nvidia/* "$site/nvidia/"
# Libraries of NVIDIA's other wheels, which launch/setup leaves out where a toolkit has them.
for library in "$(dirname "$(dirname "$(readlink -f "$(cache SHOAL_NVCC)")")")"/lib64/lib*.so.[0-9]*; do
  to=$site/nvidia/cu13/lib/$(basename "$library")
  [ -e "$to" ] || put "$(readlink -f "$library")" "$to"
done
lacking='libmpi|libyaml-cpp|libspdlog|libfmt|libjpeg|libpng|libhwloc|libevent|libnccl|libcuda|gtest'
if inside 'ldconfig -p' | grep -E "$lacking"; then fail "the bare system has a library that the bundle brings"; fi

step "run"
mkdir "$debian/srv/gpu"
cp packed/* "$debian/srv/gpu/"
few='train.duration=2step train.log_every=1step evaluate.every=never run.device=cpu run.root=/tmp/runs'
cat >"$debian/srv/gpu/try.sh" <<TRY
cd /srv/gpu
if bash run results 600 2>&1 | tee early.txt; then :; fi
EVEN_WITHOUT_GPU=1 bash run results 600 permute layer_is_a_graph call \
  'planted=echo some last words; exit 3' \
  'images=shoal train configs/sparse_mlp/tiny_cifar10.yaml $few run.name=images parallel.expert_ranks=1' \
  'text=shoal train configs/gpt2/tiny_wikitext2_bytes.yaml $few run.name=text' \
  'programs=for p in runtime parallel moe sparse models launch; do
     test \$(tests_\$p --gtest_list_tests --gtest_filter=*Gpu.*:*Gpu/* | grep -c "^  ") -gt 0 || exit 4; done
   for b in gpu_layer exchange_gpu moe_layer sparse_attention_gpu sparse_linear sparse_model train_step; do
     \${b}_bench --help >/dev/null || exit 5; done
   if ldd build/libshoal_cuda.so build/tests_launch | grep "not found"; then exit 6; fi' || echo "run ended with \$?"
TRY
offline 'bash /srv/gpu/try.sh' 2>&1 | tee run.txt
results=$debian/srv/gpu/results
python3 - "$results" <<'PYTHON'
import json, pathlib, sys, tarfile
results = pathlib.Path(sys.argv[1])
rows = {row["row"]: row for row in json.loads((results / "summary.json").read_text())["rows"]}
page = (results / "summary.md").read_text()
status = {name: row["status"] for name, row in rows.items()}
assert status == {"works": "FAILED 1", "planted": "FAILED 3", "images": "ok", "text": "ok", "programs": "ok",
                  "layer_is_a_graph": "FAILED 1", "call": "FAILED 1", "permute": "FAILED 1"}, status
assert rows["planted"]["last_lines"] == ["some last words"], rows["planted"]
assert "## planted: FAILED 3\n\n```\nsome last words\n```" in page, page
assert rows["works"]["failed_part"] == "plug-in", rows["works"]
assert "this machine has no GPU" in " ".join(rows["works"]["last_lines"]), rows["works"]
assert rows["layer_is_a_graph"]["tests"]["not_passed"] == ["MoeLayerGpu.OnOneRankIsACudaGraph"], rows
for name in ("images", "text"):
    assert any(line.startswith("step 2") for line in rows[name]["said"]), rows[name]
logs = tarfile.open(results / "logs.tar.gz").getnames()
assert {"planted.log", "text.log", "works.NCCL.log"} <= set(logs), logs
PYTHON
grep -q 'nothing else is tried' "$debian/srv/gpu/early.txt" || fail "went on without a GPU"
grep -q '^run ended with 1$' run.txt || fail "rows failed, but the run did not"
step "$(($(stat -c %s packed/bundle.tar.xz) >> 10)) KiB; the planted row failed, the others went on"
