#!/usr/bin/env bash
# launch/setup against stand-ins for apt-get and pip: what it installs, skips, retries and refuses.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
bin=$PWD/bin
log=$PWD/calls.log

fail() {
  echo "FAILED: $*"
  echo "--- output:"; cat output 2>/dev/null || true
  echo "--- calls:"; cat "$log" 2>/dev/null || true
  exit 1
}

# A PATH that holds nothing but stand-ins and the plain tools.
make_bin() {
  mkdir -p "$bin"
  local tool
  for tool in bash env dirname basename cat sed grep mkdir rm mv df awk flock seq sleep find \
    readlink uname mktemp touch nproc id ls chmod sort; do
    ln -sf "$(command -v "$tool")" "$bin/$tool"
  done
  cat >"$bin/dpkg-query" <<'END'
#!/usr/bin/env bash
package=${!#}
if grep -qx "$package" "$FAKE/absent" 2>/dev/null; then exit 1; fi
printf installed
END
  cat >"$bin/apt-get" <<'END'
#!/usr/bin/env bash
echo "apt-get $*" >>"$FAKE/calls.log"
if [ -e "$FAKE/no_network" ]; then exit 100; fi
case "$*" in *install*) rm -f "$FAKE/absent" ;; esac
END
  cat >"$bin/python3" <<'END'
#!/usr/bin/env bash
if [ "$1" = -c ]; then echo 3.12; exit 0; fi
case "$3" in
  --version) exit 0 ;;
  download)
    wheel=${!#}
    echo "download $wheel" >>"$FAKE/calls.log"
    if [ -e "$FAKE/no_network" ]; then exit 1; fi
    # Breaks off as often as the file says.
    left=$(cat "$FAKE/breaks" 2>/dev/null || echo 0)
    if [ "$left" -gt 0 ]; then echo $((left - 1)) >"$FAKE/breaks"; exit 1; fi
    while [ "$1" != -d ]; do shift; done
    touch "$2/$wheel.whl" ;;
  install)
    echo "install" >>"$FAKE/calls.log"
    while [ "$1" != --target ]; do shift; done
    if [ -e "$FAKE/bad_wheel" ]; then mkdir -p "$2/torch"; exit 1; fi
    mkdir -p "$2/torch/lib" "$2/nvidia/cu13/"{lib,bin}
    touch "$2/nvidia/cu13/bin/"{cuobjdump,nvdisasm}
    touch "$2/torch/lib/libtorch_cpu.so"
    for name in cudnn.so.9 nccl.so.2 cusparseLt.so.0 nvshmem_host.so.3 cufile.so.0 cublas.so.13 \
      cusparse.so.12 cufft.so.12 curand.so.10 cusolver.so.12 nvJitLink.so.13; do
      touch "$2/nvidia/cu13/lib/lib$name"
    done ;;
esac
END
  chmod +x "$bin/dpkg-query" "$bin/apt-get" "$bin/python3"
}

# setup NAME EXPECTED_STATUS [ASSIGNMENT...]: runs launch/setup, with the words of `options`, with a
# cache folder of that name.
options=()
setup() {
  local name=$1 expected=$2 status=0
  shift 2
  : >"$log"
  env -i PATH="$bin" HOME="$PWD/home" FAKE="$PWD" XDG_CACHE_HOME="$PWD/$name" \
    SHOAL_RETRY_SECONDS=0 "$@" "$root/launch/setup" "${options[@]}" >output 2>&1 || status=$?
  [ "$status" -eq "$expected" ] || fail "$name: exit $status, expected $expected"
}
says() { grep -q -- "$1" output || fail "lacks: $1"; }
calls() { grep -c "$1" "$log" || true; }
installed() { [ -e "$1/shoal/torch-2.11.0/torch/lib/libtorch_cpu.so" ]; }
tidy() { [ -z "$(ls "$1/shoal" | grep -vE '^(torch-2.11.0|setup.lock)$')" ] || fail "$1: leftovers"; }

make_bin

: >"$log"
env -i PATH="$bin" HOME="$PWD/home" FAKE="$PWD" XDG_CACHE_HOME="$PWD/dry" \
  "$root/launch/setup" --dry-run >output 2>&1 || fail "dry run"
says "LibTorch 2.11.0: installing into"
{ [ ! -e dry ] && [ ! -s "$log" ]; } || fail "a dry run must change nothing"

status=0
env -i PATH="$bin" HOME="$PWD/home" "$root/launch/setup" --dryrun >output 2>&1 || status=$?
[ "$status" -eq 2 ] || fail "an unknown argument ended with $status, wanted 2"
status=0
env -i PATH="$bin" "$root/launch/setup" --dry-run >output 2>&1 || status=$?
[ "$status" -eq 1 ] || fail "no place for LibTorch: ended with $status, wanted 1"
says "neither HOME nor XDG_CACHE_HOME is set"
status=0
env -i PATH="$bin" HOME="$PWD/home" "$root/launch/quickstart" --seed=2 >output 2>&1 || status=$?
[ "$status" -eq 2 ] || fail "launch/quickstart --seed=2 ended with $status, wanted 2"

setup fresh 0
installed fresh || fail "LibTorch is not there"
tidy fresh
says "all .* are there, skipped"
setup fresh 0
says "LibTorch 2.11.0: in .*, skipped"
[ ! -s "$log" ] || fail "a second run must change nothing"

printf 'mold\nninja-build\n' >absent
setup fresh 0
says "installing .*ninja-build"
[ "$(calls 'install --no-install-recommends ninja-build mold')" -eq 1 ] || fail "wrong packages"

echo 2 >breaks
setup broken 0
installed broken || fail "a download that breaks off must be tried again"
[ "$(calls 'download torch')" -eq 3 ] || fail "expected three attempts"

touch no_network
setup offline 1
says "could not download torch==2.11.0"
says "No network?"
! installed offline || fail "nothing must have the final name"
rm no_network
setup offline 0
installed offline || fail "must go on where it stopped"
tidy offline

touch bad_wheel
setup damaged 1
says "run launch/setup again"
! installed damaged || fail "half a LibTorch has the final name"
rm bad_wheel
setup damaged 0
installed damaged || fail "must start over"
tidy damaged

mkdir -p own/lib own/include/torch
setup root 1 SHOAL_TORCH_ROOT="$PWD/own"
says "holds no LibTorch"
touch own/lib/libtorch_cpu.so
setup root 0 SHOAL_TORCH_ROOT="$PWD/own"
says "nothing to install"
[ ! -s "$log" ] || fail "nothing must be installed"

rm "$bin/df"
printf '#!%s\necho head; echo x 1 1 12 1 /\n' "$(command -v bash)" >"$bin/df"
chmod +x "$bin/df"
setup full 1
says "has 12 MB free, 3000 MB are needed"
ln -sf "$(PATH=/usr/bin:/bin command -v df)" "$bin/df"

rm "$bin/id"
printf '#!%s\necho 1000\n' "$(command -v bash)" >"$bin/id"
chmod +x "$bin/id"
echo mold >absent
setup user 1
says "you are not root and there is no sudo"
says "apt-get install mold"
printf '#!%s\necho "sudo" >>"$FAKE/calls.log"\nexec "$@"\n' "$(command -v bash)" >"$bin/sudo"
chmod +x "$bin/sudo"
setup user 0
[ "$(calls sudo)" -eq 2 ] || fail "root's work must go through sudo"
ln -sf "$(PATH=/usr/bin:/bin command -v id)" "$bin/id"

: >"$log"
for i in 1 2; do
  env -i PATH="$bin" HOME="$PWD/home" FAKE="$PWD" XDG_CACHE_HOME="$PWD/twice" \
    "$root/launch/setup" >"output.$i" 2>&1 &
done
wait -n && wait -n || fail "two at once"
[ "$(calls 'download torch')" -eq 1 ] || fail "two at once must download once"
tidy twice

echo mkdocs >absent
setup twice 0
[ "$(calls mkdocs)" -eq 0 ] || fail "mkdocs without --docs"
options=(--docs)
setup twice 0
[ "$(calls 'install.* mkdocs')" -eq 1 ] || fail "no mkdocs by --docs"
options=(--doc)
setup twice 2
says "unknown argument '--doc'"
