#!/usr/bin/env bash
# slurm.sh BUILD: a Slurm of this machine alone, with daemons and folders of its own: srun --mpi=pmix trains to the file of one process, and a job that is
# requeued in mid-training goes on by --resume auto to the file of one that was left alone. Needs root, and Debian's slurm-wlm and munge.
set -euo pipefail
build=$(cd "$1" && pwd)
tessera=$build/cli/tessera
for program in munged mungekey slurmctld slurmd srun sbatch; do
  if [ "$(id -u)" -ne 0 ] || ! command -v $program >/dev/null; then
    echo "skipped | processes that Slurm starts | it wants root, and $program (Debian: slurm-wlm, munge)"
    exit 0
  fi
done
work=$(mktemp -d)
chmod 755 "$work"
daemons=()
clean() {
  [ ! -e "$work/slurm.conf" ] || scancel --user=root 2>/dev/null || true
  [ ${#daemons[@]} -eq 0 ] || kill "${daemons[@]}" 2>/dev/null || true
  sleep 0.5
  [ ${#daemons[@]} -eq 0 ] || kill -KILL "${daemons[@]}" 2>/dev/null || true
  pkill -KILL -f "slurmstepd: .*$work" 2>/dev/null || true
  rm -rf "$work"
}
trap clean EXIT
fail() { echo "FAILED: $*" >&2; tail -n 20 "$work"/*.log >&2 || true; exit 1; }
export TESSERA_PROFILE=none TESSERA_PLUGIN_PATH=$build/capi SLURM_CONF=$work/slurm.conf

mkdir -m 700 "$work/munge"
mungekey -c -k "$work/munge/key"
munged --foreground --force --key-file="$work/munge/key" --socket="$work/munge.socket" --pid-file="$work/munge/pid" --seed-file="$work/munge/seed" \
  --log-file="$work/munge.log" --num-threads=2 >"$work/munged.log" 2>&1 &
daemons+=($!)
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'; }
mkdir "$work/state" "$work/spool"
cat >"$SLURM_CONF" <<CONF
ClusterName=tessera
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
MpiDefault=pmix
ReturnToService=2
KillWait=2
MinJobAge=30
NodeName=$(hostname) NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE OverSubscribe=FORCE:4
CONF
slurmctld -D -f "$SLURM_CONF" >"$work/ctl.log" 2>&1 &
daemons+=($!)
slurmd -D -f "$SLURM_CONF" -N "$(hostname)" >"$work/d.log" 2>&1 &
daemons+=($!)
for i in $(seq 100); do
  sinfo -h -o %T 2>/dev/null | grep -q idle && break
  [ "$i" -lt 100 ] || fail "Slurm does not come up"
  sleep 0.2
done

"$tessera" new "gpt2:L=2,C=64,H=4,V=512,T=64" --tokenizer bytes -o "$work/model.tsr" >"$work/new.txt"
for i in $(seq 300); do echo "line $i of a text: the fox jumps over dog number $((i * 7 % 50)), and goes on"; done >"$work/text.txt"
train() { echo train "$work/model.tsr" --data "$work/text.txt" --seq 32 --batch 4 --seed 3 --parallel dp=2 --out "$work/$1.tsr" "${@:2}"; }
# shellcheck disable=SC2046
"$tessera" $(train one --devices cpu:2 --steps 6) >"$work/one.txt" 2>&1
# shellcheck disable=SC2046
timeout 120 srun -n 2 --mpi=pmix "$tessera" $(train two --devices cpu:1 --steps 6) >"$work/two.txt" 2>&1 || { cat "$work/two.txt"; fail "srun"; }
cmp "$work/one.tsr" "$work/two.tsr" || fail "srun: another file"
echo "processes | srun --mpi=pmix, 2 processes: the file of one"

# shellcheck disable=SC2046
"$tessera" $(train whole --devices cpu:2 --steps 1000 --checkpoint-every 50) >"$work/whole.txt" 2>&1
cat >"$work/job.sh" <<JOB
#!/bin/bash
#SBATCH --requeue --ntasks=2 --output=$work/job.txt --open-mode=append
srun --mpi=pmix $tessera $(train job --devices cpu:1 --steps 1000 --checkpoint-every 50 --resume auto)
JOB
job=$(sbatch --parsable "$work/job.sh")
for i in $(seq 600); do
  [ -e "$work/job.tsr.checkpoint/manifest" ] && break
  [ "$i" -lt 600 ] || fail "the job writes no checkpoint"
  sleep 0.05
done
scontrol requeue "$job"
for i in $(seq 600); do
  [ -e "$work/job.tsr" ] && ! squeue -h -j "$job" 2>/dev/null | grep -q . && break
  scontrol release "$job" 2>/dev/null || true
  [ "$i" -lt 600 ] || { cat "$work/job.txt"; squeue; fail "the requeued job does not end"; }
  sleep 0.2
done
grep -q 'resumed at step' "$work/job.txt" || { cat "$work/job.txt"; fail "the requeued job has not gone on from its checkpoint"; }
cmp "$work/whole.tsr" "$work/job.tsr" || fail "the requeued job has written another file"
echo "processes | a requeued job goes on by --resume auto: the same file"
echo "ok: Slurm"
