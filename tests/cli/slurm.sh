#!/usr/bin/env bash
# launch/slurm.sbatch against stand-ins for Slurm's commands: what it starts, what it does when the
# time is up, and what it refuses.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
unset OMP_NUM_THREADS SHOAL_PROGRAM SRUN_FLAGS

fail() { echo "FAILED: $*"; cat output calls.log 2>/dev/null || true; exit 1; }

mkdir bin
cat >bin/srun <<'END_OF_SRUN'
#!/usr/bin/env bash
if [ "$1" = --mpi=list ]; then cat "$FAKE/plugins"; exit; fi
echo "srun $*" >>"$FAKE/calls.log"
while [[ "$1" = -* ]]; do shift; done
exec "$@"
END_OF_SRUN
cat >bin/scontrol <<'END_OF_SCONTROL'
#!/usr/bin/env bash
echo "scontrol $*" >>"$FAKE/calls.log"
exit "${REQUEUE_FAILS:-0}"
END_OF_SCONTROL
# Ends with the code in the file `code` on SIGUSR1, with that in `code_now` at once.
mkdir -p build/release
cat >build/release/shoal <<'END_OF_PROGRAM'
#!/usr/bin/env bash
trap 'exit "$(cat code)"' USR1
trap 'exit "$(cat code)"' TERM
echo "up: threads $OMP_NUM_THREADS, $*" || true
touch up
[ ! -e code_now ] || exit "$(cat code_now)"
while :; do sleep 0.05; done
END_OF_PROGRAM
chmod +x bin/* build/release/shoal
echo 'MPI plugin types are... pmi2 pmix' >plugins
export FAKE=$PWD PATH=$PWD/bin:$PATH

# batch ARGUMENT...: the script as Slurm runs it, a copy of it, in a job.
cp "$root/launch/slurm.sbatch" slurm_script
batch() {
  : >calls.log
  SLURM_JOB_ID=7 SLURM_SUBMIT_DIR=$PWD SLURM_CPUS_PER_TASK=3 exec ./slurm_script "$@" >output 2>&1
}
# ends_with CODE ARGUMENT...
ends_with() {
  local status=0
  (batch "${@:2}") || status=$?
  [ "$status" -eq "$1" ] || fail "'${*:2}' ended with $status, wanted $1"
}
says() { grep -q -- "$1" output || fail "lacks: $1"; }

for code in 0 13 75; do
  echo "$code" >code_now
  ends_with "$code" train recipe.yaml a=b
  ! grep -q scontrol calls.log || fail "queued again without need"
done
says 'up: threads 3, train recipe.yaml a=b$'
SLURM_RESTART_COUNT=1 ends_with 75 train recipe.yaml run.on_existing=overwrite
says 'up: threads 3, train recipe.yaml run.on_existing=overwrite run.on_existing=resume$'
ends_with 1 train recipe.yaml run.on_existing=new
says 'Name the run'
ends_with 75 train recipe.yaml a=b
grep -q -- '--mpi=pmix --cpus-per-task=3 .*build/release/shoal train recipe.yaml' calls.log ||
  fail "srun's flags"
ends_with 75 eval run
says 'up: threads 3, eval run$'
SRUN_FLAGS='--gpus-per-task=1 -l' ends_with 75 train recipe.yaml
grep -q -- ' --gpus-per-task=1 -l .*/build/release/shoal' calls.log || fail "SRUN_FLAGS"
rm code_now

# signalled SIGNAL: starts a job, signals the script alone; sets status.
signalled() {
  (batch train recipe.yaml) &
  local job=$!
  until grep -q '^up' output 2>/dev/null; do
    kill -0 "$job" 2>/dev/null || fail "ended before it was signalled"
    sleep 0.05
  done
  kill "-$1" "$job"
  status=0
  if [ "$1" = TERM ]; then
    sleep 0.3
    kill -0 "$job" 2>/dev/null || fail "the script left before the ranks"
    pkill -TERM -P "$job"
  fi
  wait "$job" || status=$?
}
echo 75 >code
rm -f output
signalled USR1
[ "$status" -eq 75 ] || fail "time up: $status instead of 75"
grep -qx 'scontrol requeue 7' calls.log || fail "not queued again"
# Though nothing can be printed.
rm -f output up
ln -s /dev/full output
status=0
(batch train recipe.yaml) &
job=$!
until [ -e up ]; do sleep 0.05; done
kill -USR1 "$job"
wait "$job" || status=$?
rm output && touch output
[ "$status" -eq 75 ] || fail "time up, full disk: $status instead of 75"
grep -qx 'scontrol requeue 7' calls.log || fail "not queued again where the disk is full"
echo 30 >code
rm -f output
signalled USR1
[ "$status" -eq 30 ] || fail "a failure when the time is up: $status instead of 30"
! grep -q scontrol calls.log || fail "a failed job was queued again"
echo 75 >code
rm -f output
REQUEUE_FAILS=1 signalled USR1
[ "$status" -eq 1 ] || fail "Slurm refuses to queue the job: $status instead of 1"
says 'cannot queue again'
rm -f output
signalled TERM
[ "$status" -eq 75 ] || fail "a cancelled job: $status instead of 75"
! grep -q scontrol calls.log || fail "a cancelled job was queued again"

ends_with 2
says 'no command'
echo 'MPI plugin types are... none pmi2' >plugins
ends_with 1 train recipe.yaml
says 'no PMIx plug-in'
rm build/release/shoal
ends_with 1 train recipe.yaml
says 'build/release/shoal is not there'
! env -u SLURM_JOB_ID ./slurm_script train recipe.yaml >output 2>&1 || fail "ran outside of a job"
says 'not a Slurm job'
