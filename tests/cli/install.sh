#!/usr/bin/env bash
# `cmake --install` into a fresh prefix: the installed program trains the quickstart under the
# installed launch/run, and a program of someone else builds and runs with the CMake package.
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

expect 0 "$prefix/bin/shoal" recipes
grep -q "prefix/share/shoal/configs/quickstart.yaml" output || fail "no installed recipes: $(cat output)"
expect 0 "$share/launch/metrics_to_wandb" --help
expect 0 "$share/launch/run" -n 2 train "$share/configs/quickstart.yaml" run.root="$PWD/runs" \
  train.duration=10step train.log_every=5step data.valid.samples=64
expect 0 "$prefix/bin/shoal" ckpt verify "$PWD/runs/quickstart/ckpt/step-00000010"
[ "$(grep -c '"loss_hex"' runs/quickstart/metrics.jsonl)" -eq 2 ] || fail "logged steps"

mkdir consumer
cat >consumer/CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES CXX)
find_package(shoal 0.1 REQUIRED)
add_executable(consumer main.cpp)
target_link_libraries(consumer PRIVATE shoal::shoal)
END
cat >consumer/main.cpp <<'END'
#include <iostream>

#include "runtime/base/build_info.h"
#include "runtime/device/device.h"

int main() {
  std::cout << shoal::build_info().version << " " << shoal::resolve_device("cpu").device << "\n";
}
END
expect 0 cmake -G Ninja -S consumer -B consumer/build -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_CXX_FLAGS="$sanitize"
expect 0 cmake --build consumer/build
ldd consumer/build/consumer | grep -qF "libshoal.so => $prefix/lib/libshoal.so" ||
  fail "the consumer runs another libshoal"
[ "$(consumer/build/consumer)" = "0.1.0 cpu" ] || fail "the consumer's output"
