#!/usr/bin/env bash
# Usage: in_namespaces.sh COMMAND [ARGUMENT...]: runs the command as root of a network, a host name,
# mounts and processes of its own, which all end with it. The machine's own stay as they are.
set -euo pipefail
flags=(--net --uts --mount --pid --fork --kill-child --mount-proc)
[ "$(id -u)" -eq 0 ] || flags+=(--map-root-user)
exec unshare "${flags[@]}" "$@"
