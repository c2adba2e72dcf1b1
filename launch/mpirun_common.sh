# Sourced by the scripts that start mpirun, after common.sh: the program, the cores, the signals.

# Sets $program, an absolute path: in a checkout the program built there, among installed files
# (PREFIX/share/shoal/launch) the one installed with them.
find_program() {
  local default=$shoal_root/build/release/shoal
  [ -e "$shoal_root/CMakeLists.txt" ] || default=$(cd "$shoal_root/../.." && pwd)/bin/shoal
  program=${SHOAL_PROGRAM:-$default}
  [[ "$program" = /* ]] || program=$PWD/$program
  [ -x "$program" ] ||
    die "$program is not there" "Build it: launch/quickstart, or cmake --workflow --preset release."
  command -v mpirun >/dev/null ||
    die "mpirun is not there" "Run launch/setup, or apt-get install openmpi-bin."
}

# Cores this process may use; hardware threads of one core count once, as mpirun counts them.
usable_cores() {
  local allowed
  allowed=$(taskset -cp $$ | sed 's/.*: //')
  lscpu -p=CPU,CORE,SOCKET | awk -F, -v allowed="$allowed" '
    BEGIN {
      n = split(allowed, parts, ",")
      for (i = 1; i <= n; i++) {
        split(parts[i], ends, "-")
        last = (ends[2] == "") ? ends[1] : ends[2]
        for (cpu = ends[1] + 0; cpu <= last + 0; cpu++) may[cpu] = 1
      }
    }
    !/^#/ && ($1 in may) && !seen[$2 "," $3]++ { cores++ }
    END { print (cores > 0 ? cores : 1) }'
}

alive() { grep -qs '^State:[[:blank:]]*[^ZX]' "/proc/$1/status"; }

# The ranks on this machine. Other children of mpirun are ssh's, to other machines.
living_ranks() {
  local rank
  for rank in $(cat "/proc/$mpirun_pid/task/"*/children 2>/dev/null); do
    if alive "$rank" && grep -qsz '^OMPI_COMM_WORLD_RANK=' "/proc/$rank/environ"; then
      echo "$rank" 2>/dev/null || true  # whoever asked may be gone
    fi
  done
}

# Whether all ranks on this machine note SIGUSR1.
ranks_listen() {
  local rank caught listening=0
  for rank in $(living_ranks); do
    caught=$(sed -n 's/^SigCgt:[[:blank:]]*//p' "/proc/$rank/status" 2>/dev/null) || continue
    [ $((16#${caught:-0} & 16#200)) -eq 0 ] || listening=$((listening + 1))
  done
  [ "$listening" -ge "$local_ranks" ]
}

# Waits for a condition, but not beyond the end of mpirun nor for more than 5 s; whether it holds.
wait_until() {
  local i
  for i in {1..100}; do
    alive "$mpirun_pid" || return 1
    if "$1"; then return 0; fi
    sleep 0.05 || true
  done
  return 1
}
has_ranks() { [ -n "$(living_ranks)" ]; }

# tell_signal SIGNAL TEXT: on a terminal on a line of its own, below the bar and the ^C.
tell_signal() {
  local name=SIG$1
  [ "$1" != INT ] || name=Ctrl-C
  [ ! -t 2 ] || printf '\n' >&2 || true
  say "$name: $2" >&2
}

# Ends the ranks at once. Those of `train` end at a second INT or TERM; SIGUSR1 is not counted.
end_ranks() {
  local signal kinds=TERM
  [ "$command" != train ] || kinds='INT TERM'
  for signal in $kinds; do
    living_ranks | xargs -r kill "-$signal" 2>/dev/null || true
  done
}

# A terminal's Ctrl-C reaches all of its session, and mpirun kills the ranks a second after SIGINT,
# SIGTERM or SIGHUP; so it gets a session of its own, and SIGUSR1, which it forwards.
signals=0 last_us=0 last_signal=''
pass_on() {
  interrupted=yes
  local now_us=${EPOCHREALTIME//[^0-9]/} parent='' as_one_us=50000
  # timeout sends its signal twice, to its child and to the group, and a terminal that closes HUP.
  read -r parent 2>/dev/null <"/proc/$PPID/comm" || true
  [ "$parent" != timeout ] || as_one_us=500000
  [ $((now_us - last_us)) -gt "$as_one_us" ] && [ "$1$last_signal" != HUPHUP ] || return 0
  last_us=$now_us last_signal=$1
  signals=$((signals + 1))
  signal_ranks "$1"
}

# signal_ranks SIGNAL: passes it on, and only then prints, which may fail.
signal_ranks() {
  # Ranks that do not note SIGUSR1 yet would die of it or miss it. The other signals go to the
  # ranks where there are some here: mpirun may crash of SIGTERM while they leave.
  if [ "$signals" -eq 1 ] && [ "$command" = train ] && wait_until ranks_listen; then
    kill -USR1 "$mpirun_pid" 2>/dev/null || true
    tell_signal "$1" "the ranks save and end; once more ends them at once"
    return 0
  fi
  if [ "$local_ranks" -eq 0 ]; then
    kill -TERM "$mpirun_pid" 2>/dev/null || true
  elif wait_until has_ranks; then
    end_ranks
  fi
  tell_signal "$1" "$command is ended"
}

# Where standard error is a terminal, sets SHOAL_COLUMNS to its width: ranks, which write into pipes
# of mpirun's, draw their progress for it.
find_columns() {
  local size
  unset SHOAL_COLUMNS
  [ -t 2 ] && size=$(stty size <&2 2>/dev/null) || return 0
  size=${size#* }  # rows, columns
  if [[ "$size" =~ ^[1-9][0-9]*$ ]]; then export SHOAL_COLUMNS=$size; fi
}

# threads_per_rank ARGUMENT...: as shoal's arguments or the environment have them.
threads_per_rank() {
  local word threads=${OMP_NUM_THREADS:-1}
  threads=${threads%%,*}
  for word in "$@"; do
    if [[ "$word" =~ ^run\.threads=([0-9]+)$ ]]; then threads=${BASH_REMATCH[1]}; fi
  done
  [[ "$threads" =~ ^[0-9]+$ ]] || threads=1
  echo "$((10#$threads))"
}

# spare_cores THREADS CORES: of more threads than cores none may keep a core while it waits. libgomp
# reads this when it is loaded, and a rank by itself knows of its own threads only.
spare_cores() {
  [ "$1" -gt "$2" ] || return 0
  export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
}

# mpirun in a session of its own, in the background.
start_mpirun() {
  local word input=/dev/null
  # `-` among the words: standard input goes to rank 0. A terminal's does not reach a new session.
  for word in "$@"; do
    case "$word" in - | *=-) [ -t 0 ] || input=/dev/stdin ;; esac
  done
  setpriv --pdeathsig TERM setsid mpirun "$@" <"$input" >&"$output" 2>&"$errors" {output}>&- {errors}>&- &
  mpirun_pid=$!
}

# Sets $code to mpirun's exit code. A trapped signal ends `wait` early.
wait_for_mpirun() {
  while :; do
    interrupted='' code=0
    wait "$mpirun_pid" || code=$?
    [ -n "$interrupted" ] || return 0
  done
}

# Of quiet runs, whose mpirun does not tell it.
tell_killing_signal() {
  [ "$code" -gt 128 ] && [ "$code" -le 192 ] && [ "$signals" -eq 0 ] || return 0
  local name cause=''
  name=$(kill -l $((code - 128)) 2>/dev/null) || true
  case "$name" in
    KILL) cause=", as by the system where memory runs out" ;;
    TERM | INT | HUP | QUIT | USR1 | USR2 | XCPU) ;;  # sent by somebody
    *) cause=", a fault in shoal, please report it" ;;
  esac
  say "a rank was ended by signal $((code - 128)) ($name)$cause;" \
    "log/ in the run folder has what each rank did last" >&2
}

# Prints what it reads, all of it even where that fails.
read_all() {
  trap '' PIPE INT TERM HUP USR1 USR2
  cat 2>/dev/null || cat >/dev/null
}

# is_silent ARGUMENT...: whether a quiet mpirun has not said why no rank began. Open MPI 5 always says
# it; Open MPI 4 does of flags that it does not know, which end it before it answers --version.
is_silent() { [[ $(mpirun --version "$@" 2>/dev/null) = *'(Open MPI) 4.'* ]]; }

# run_mpirun ARGUMENT...: mpirun, with its exit code as the script's. $command is shoal's command,
# $local_ranks the number of ranks that this machine will have. $unstarted, if set, is a file that
# the ranks remove when they begin: then mpirun keeps to itself what it has to say of a rank that
# failed, since the rank has said why. Where no rank begins, and mpirun has kept to itself why, it is
# run again to say it.
run_mpirun() {
  local output errors readers=() again='' code
  # Open MPI ends the ranks once its output is not read, as after `| head`, or cannot be written, as
  # to a full disk or a terminal that is gone: somebody always reads it.
  exec {output}> >(read_all)
  readers+=("$!")
  errors=$output
  if [ ! /proc/self/fd/1 -ef /proc/self/fd/2 ]; then
    exec {errors}> >(read_all >&2)
    readers+=("$!")
  fi
  find_columns
  # --quiet in Open MPI 4's words and in 5's, which has no such flag.
  local quiet=${unstarted:+1}
  OMPI_MCA_orte_execute_quiet=${quiet:-0} PRTE_MCA_prte_execute_quiet=${quiet:-0} start_mpirun "$@"
  local signal
  for signal in INT TERM HUP USR1 USR2; do
    # shellcheck disable=SC2064
    trap "pass_on $signal" "$signal"
  done
  wait_for_mpirun
  if [ -e "${unstarted:-}" ] && [ "$code" -ne 0 ] && [ "$signals" -eq 0 ] && is_silent "$@"; then
    again=yes
    start_mpirun "$@"
    wait_for_mpirun
  fi
  [ "$errors" = "$output" ] || exec {errors}>&-
  exec {output}>&-
  wait "${readers[@]}" || true
  [ -z "${unstarted:-}" ] || [ -n "$again" ] || tell_killing_signal
  exit "$code"
}
