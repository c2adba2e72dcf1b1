#!/usr/bin/env bash
# Packs a build and uses both packages on a fresh Debian 12 without a compiler, and without network
# once they are installed: version, quickstart for a few steps on one rank and on two under mpirun.
#
# Usage: fresh_debian.sh BUILD [MIRROR]      in an empty folder, as root, with debootstrap
#   BUILD    a build folder, as build/release, in which `shoal` is built
source "$(dirname "${BASH_SOURCE[0]}")/debian.sh"

step "packing $build"
cpack --config "$build/CPackConfig.cmake" -B packages
rm -rf packages/_CPack_Packages
deb=$(echo packages/shoal_*.deb) archive=$(echo packages/shoal-*.tar.gz)
ls -l packages
dpkg-deb -f "$deb"
dpkg-deb -c "$deb" >contents.txt
! grep -q libshoal_cuda contents.txt || fail "the CUDA plug-in is in the package"
for part in lib/shoal/libtorch_cpu.so doc/shoal/licences/torch doc/shoal/licences/nvidia_cuda_runtime; do
  grep -q " \./usr/.*$part" contents.txt || fail "no $part in the package"
done

step "a fresh Debian 12"
fresh_debian
cp "$deb" "$archive" "$debian/tmp"
install_packages "/tmp/$(basename "$deb")"
inside '! command -v cc gcc g++ clang cmake make python3 >&2' || fail "there is a compiler"

# use PREFIX: trains with what is below it.
use() {
  offline "
    cd \$(mktemp -d)
    $1/bin/shoal --version
    $1/bin/shoal recipes >recipes.txt
    grep -q $1/share/shoal/configs/quickstart.yaml recipes.txt
    $1/bin/shoal doctor >doctor.txt || { cat doctor.txt; exit 1; }
    few='train.duration=6step data.valid.samples=64 train.log_every=2step'
    $1/bin/shoal train $1/share/shoal/configs/quickstart.yaml \$few parallel.expert_ranks=1 run.name=one
    $1/share/shoal/launch/run -n 2 train $1/share/shoal/configs/quickstart.yaml \$few run.name=two
    mpirun --allow-run-as-root --oversubscribe -np 2 $1/bin/shoal eval runs/two
    $1/bin/shoal ckpt verify runs/two"
}
step "the Debian package"
use /usr
inside "test -s /usr/share/man/man1/shoal.1 && source /usr/share/bash-completion/completions/shoal"
step "the archive, anywhere"
inside "dpkg --purge shoal && ! command -v shoal && mkdir -p '/srv/a b' &&
  tar -xzf /tmp/$(basename "$archive") -C /srv && mv /srv/shoal-* /srv/anywhere"
use /srv/anywhere
step "both ran"
