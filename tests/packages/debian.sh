#!/usr/bin/env bash
# Sourced by the tests beside it: a fresh Debian 12 in $debian, and commands in it.
debian=${debian:?names the folder of the system}

fail() {
  echo "FAIL: $*" >&2
  exit 1
}
step() { echo "== $*"; }

# fresh_debian MIRROR [OPTION...]: debootstrap's options
fresh_debian() {
  debootstrap --variant=minbase "${@:2}" bookworm "$debian" "$1" >debootstrap.log ||
    fail "$(tail debootstrap.log)"
}

# inside COMMAND: a shell command in the fresh system, in namespaces that end with it.
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
