#!/usr/bin/env bash
# Usage: in_scratch.sh FOLDER COMMAND [ARGUMENT...]: runs the command in FOLDER, emptied first.
set -euo pipefail
rm -rf "$1"
mkdir -p "$1"
cd "$1"
shift
exec "$@"
