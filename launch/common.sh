# Sourced by the scripts beside it: messages, the number of build jobs.
set -euo pipefail

shoal_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
shoal_script=$(basename "$0")

# What is opened while one of these is closed would take its number, and get what is printed.
[ -e /proc/self/fd/0 ] || exec </dev/null
[ -e /proc/self/fd/1 ] || exec >/dev/null
[ -e /proc/self/fd/2 ] || exec 2>/dev/null
# No script ends because a message cannot be written. A trap, unlike '', is not handed on to programs.
trap : PIPE

say() { printf '%s: %s\n' "$shoal_script" "$*" || true; }
# die MESSAGE [LINE...]: the lines are the next step.
die() {
  printf '%s: error: %s\n' "$shoal_script" "$1" >&2 || true
  shift
  local line
  for line in "$@"; do printf '  %s\n' "$line" >&2 || true; done
  exit "${exit_code:-1}"
}
# For a wrong command line, as shoal's exit code 2.
die_of_usage() { exit_code=2 die "$@"; }

# The comment block at the top of a script is its help text.
show_help() {
  sed -n '2,/^[^#]/{/^#/!q;s/^# \{0,1\}//;p}' "$0"
}

# One compiler needs up to 2.5 GB.
build_jobs() {
  local cores memory_kb jobs
  cores=$(nproc)
  memory_kb=$(awk '/^MemAvailable/ {print $2}' /proc/meminfo)
  jobs=$((memory_kb / 2500000))
  [ "$jobs" -le "$cores" ] || jobs=$cores
  [ "$jobs" -ge 1 ] || jobs=1
  echo "${SHOAL_BUILD_JOBS:-$jobs}"
}

# Configures, with the flags in $configure_flags, and builds targets of the preset `release`.
configure_flags=()
build_release() {
  cd "$shoal_root"
  cmake --preset release "${configure_flags[@]}"
  cmake --build --preset release --parallel "$(build_jobs)" --target "$@"
}
