#!/usr/bin/env bash
# cmake/FindLibTorch.cmake: where it looks, in which order, and what it refuses.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
unset SHOAL_TORCH_ROOT
export XDG_CACHE_HOME=$PWD/cache

mkdir -p project bin
cat >project/CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.25)
project(asks LANGUAGES CXX)
list(PREPEND CMAKE_MODULE_PATH "$root/cmake")
find_package(LibTorch 2.11 REQUIRED)
message(STATUS "FOUND \${LibTorch_VERSION} \${LibTorch_ROOT} \${LibTorch_HOW}")
END
# A python3 whose torch is in ./python, if that is there.
cat >bin/python3 <<END
#!/usr/bin/env bash
[ ! -d "$PWD/python" ] || echo "$PWD/python"
END
chmod +x bin/python3
export PATH=$PWD/bin:$PATH

make_torch() {
  mkdir -p "$1/lib" "$1/include/torch/headeronly"
  touch "$1/lib/libtorch_cpu.so" "$1/lib/libc10.so"
  printf '#define TORCH_VERSION_MAJOR %s\n#define TORCH_VERSION_MINOR %s\n#define TORCH_VERSION_PATCH 0\n' \
    "${2%.*}" "${2#*.}" >"$1/include/torch/headeronly/version.h"
}
fail() { echo "FAILED: $*"; cat output; exit 1; }
configure() { cmake -G Ninja -S project -B build "$@" >output 2>&1; }
fresh() { rm -rf build; configure "$@"; }
# CMake wraps messages.
says() { grep -qF -- "$1" <<<"$(tr -s ' \n' '  ' <output)" || fail "does not say: $1"; }

! fresh || fail "found LibTorch in nothing"
says "LibTorch: not found. Run launch/setup, or pass -DSHOAL_TORCH_ROOT=FOLDER"

make_torch python 2.11
fresh || fail "python's torch"
says "FOUND 2.11.0 $PWD/python found through python3"

make_torch cache/shoal/torch-2.11.0/torch 2.11
fresh || fail "the folder of launch/setup"
says "FOUND 2.11.0 $PWD/cache/shoal/torch-2.11.0/torch installed by launch/setup"

make_torch named 2.12
SHOAL_TORCH_ROOT=$PWD/named fresh || fail "the environment variable"
says "FOUND 2.12.0 $PWD/named environment variable SHOAL_TORCH_ROOT"
configure || fail "again without the variable"
says "FOUND 2.12.0 $PWD/named"
make_torch other 2.11
SHOAL_TORCH_ROOT=$PWD/other configure || fail "again with another value"
says "FOUND 2.11.0 $PWD/other"
rm -r other
configure || fail "again after the folder went away"
says "FOUND 2.11.0 $PWD/cache/shoal/torch-2.11.0/torch"

make_torch given 2.13
SHOAL_TORCH_ROOT=$PWD/named fresh "-DSHOAL_TORCH_ROOT=$PWD/given" || fail "the command line"
says "FOUND 2.13.0 $PWD/given -DSHOAL_TORCH_ROOT"

make_torch old 2.9
! fresh "-DSHOAL_TORCH_ROOT=$PWD/old" || fail "accepted version 2.9"
says "$PWD/old (-DSHOAL_TORCH_ROOT) is version '2.9.0', wanted >= 2.11"

! fresh "-DSHOAL_TORCH_ROOT=$PWD/nowhere" || fail "accepted a folder that is not there"
says "$PWD/nowhere (-DSHOAL_TORCH_ROOT) has no lib/libtorch_cpu.so"
