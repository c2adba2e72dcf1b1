#!/usr/bin/env bash
# `cmake --install` into a fresh prefix: the installed program trains the quickstart under the
# installed launch/run, and the example of docs/ builds with the CMake package and evaluates it.
source "$(dirname "$0")/common.sh"
unset SHOAL_PROGRAM SHOAL_TORCH_ROOT
build=$(cd "$(dirname "$program")" && pwd)
prefix=$PWD/prefix
share=$prefix/share/shoal
sanitize=''
! grep -q '^SHOAL_SANITIZE:BOOL=ON' "$build/CMakeCache.txt" || sanitize=-fsanitize=address,undefined

expect 0 cmake --install "$build" --prefix "$prefix"
for file in "$prefix"/bin/shoal "$prefix"/lib/*.so; do
  ! readelf -d "$file" | grep -E 'R(UN)?PATH' | grep -F "$build" || fail "$file finds $build"
done
# What links libshoal keeps its own BLAS: the sgemm_ of sgemm_cpu.cpp is the program's.
nm -D --defined-only "$prefix/lib/libshoal.so" >exported
grep -q ' T ' exported || fail "libshoal.so exports nothing"
if grep -E ' ([sdcz]ge(mm|mv)_|cblas_.*)$' exported; then fail "libshoal.so exports BLAS"; fi
nm -D --defined-only "$prefix/bin/shoal" >exported
grep -q ' T sgemm_$' exported || fail "the program has lost its sgemm_"

expect 0 "$prefix/bin/shoal" recipes
grep -q "prefix/share/shoal/configs/quickstart.yaml" output || fail "no installed recipes: $(cat output)"
expect 0 "$share/launch/metrics_to_wandb" --help
[ -x "$share/launch/pickle_to_safetensors" ] || fail "no pickle_to_safetensors in the installation"
(cd "$root/launch" && find python -name '*.py') | while read -r file; do
  cmp "$root/launch/$file" "$share/$file" || fail "the reader in Python is not installed whole"
done
expect 0 "$share/launch/run" -n 2 train "$share/configs/quickstart.yaml" run.root="$PWD/runs" \
  train.duration=10step train.log_every=5step data.valid.samples=64
expect 0 "$prefix/bin/shoal" ckpt verify "$PWD/runs/quickstart/ckpt/step-00000010"
[ "$(grep -c '"loss_hex"' runs/quickstart/metrics.jsonl)" -eq 2 ] || fail "logged steps"

for file in share/man/man1/shoal.1 share/bash-completion/completions/shoal \
  share/zsh/{site-functions,vendor-completions}/_shoal share/fish/vendor_completions.d/shoal.fish \
  share/doc/shoal/{README.md,LICENSE,docs/recipes.md}; do
  [ -s "$prefix/$file" ] || fail "$file is not installed"
done
"$prefix/bin/shoal" man | cmp - "$prefix/share/man/man1/shoal.1" || fail "another manual"
[ ! -e "$prefix/lib/shoal" ] || fail "what is for packages alone is installed"

cp -r "$root/docs/evaluate_checkpoint" .
expect 0 cmake -G Ninja -S evaluate_checkpoint -B built -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_CXX_FLAGS="$sanitize"
expect 0 cmake --build built
expect 0 ldd built/evaluate_checkpoint
grep -qF "libshoal.so => $prefix/lib/libshoal.so" output || fail "the example runs another libshoal: $(cat output)"
expect 0 built/evaluate_checkpoint runs/quickstart
mv output example.txt
expect 0 "$prefix/bin/shoal" eval runs/quickstart
while read -r label value; do
  grep -qE "^ *$label +$value\$" output || fail "'$label $value' of the example is not in $(cat output)"
done <example.txt
[ "$(wc -l <example.txt)" -ge 3 ] || fail "the example prints $(cat example.txt)"
