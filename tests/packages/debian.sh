#!/usr/bin/env bash
# Sourced by the tests beside it, which run in an empty folder with arguments BUILD [MIRROR]: a bare Debian 12 in
# $debian, and commands in it.
set -euo pipefail
build=$(cd "$1" && pwd)
mirror=${2:-http://deb.debian.org/debian}
debian=$PWD/debian
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

fail() {
  echo "FAIL: $*" >&2
  exit 1
}
step() { echo "== $*"; }

# fresh_debian [OPTION...]: makes the system, with debootstrap's options.
fresh_debian() {
  debootstrap --variant=minbase "$@" bookworm "$debian" "$mirror" >debootstrap.log ||
    fail "$(tail debootstrap.log)"
}

# inside COMMAND: a shell command in the system, in namespaces that end with it.
inside() {
  unshare --mount --pid --fork bash -c '
    mount -t proc proc "$0/proc"
    mount --rbind /dev "$0/dev"
    mount --rbind /sys "$0/sys"
    exec chroot "$0" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C \
      DEBIAN_FRONTEND=noninteractive bash -ec "$1"' "$debian" "$1"
}
# offline COMMAND: the same without any network but the machine's own.
offline() {
  debian=$debian unshare --net bash -c 'ip link set lo up; exec "$0" "$@"' \
    bash -c "$(declare -f inside); inside \"\$1\"" bash "$1"
}

# install_packages PACKAGE...: by apt, in the system; a package may be a file there.
install_packages() {
  printf 'deb %s main\n' "$mirror bookworm" "$mirror bookworm-updates" \
    "${mirror%/debian}/debian-security bookworm-security" >"$debian/etc/apt/sources.list"
  inside "apt-get update -q && apt-get install -y -q --no-install-recommends $*" >>install.log 2>&1 ||
    fail "$(tail install.log)"
}
