#!/usr/bin/env bash
# SHOAL_CUDA_ARCHITECTURES becomes what cmake and the plug-in take, or an error that lists the choices.
source "$(dirname "$0")/common.sh"

cat >nvcc <<'EOF'
#!/bin/sh
[ "$1" = --list-gpu-arch ] || exit 1
printf 'compute_75\ncompute_80\ncompute_90\ncompute_100\ncompute_103\n'
EOF
cat >try.cmake <<EOF
cmake_minimum_required(VERSION 3.25)
include("$root/cmake/ShoalCudaArchitectures.cmake")
shoal_cuda_architectures("\${NVCC}" "\${WANTED}")
message("\${CMAKE_CUDA_ARCHITECTURES} and \${SHOAL_CUDA_CAPABILITIES}")
EOF
chmod +x nvcc
try() { cmake -DNVCC="${nvcc:-$PWD/nvcc}" -DWANTED="$1" -P try.cmake; }

expect 0 try 90
grep -qx '90 and 90' output || fail "$(cat output)"
expect 0 try '100;80;90;80'
grep -qx '80-real;90-real;100 and 80,90,100' output || fail "$(cat output)"

for wanted in 75 95 90a native 90-real '80;x' ''; do
  expect 1 try "$wanted"
  grep -q SHOAL_CUDA_ARCHITECTURES output || fail "'$wanted': $(cat output)"
done
expect 1 try 95
grep -q "by default CMAKE_CUDA_ARCHITECTURES: '95', expected numbers from 80 on, of those that .* knows: 75 80 90 100 103" <<<"$(tr -s ' \n' ' ' <output)" ||
  fail "$(cat output)"
nvcc=/bin/false expect 1 try 90
grep -q -e '--list-gpu-arch' output || fail "$(cat output)"
