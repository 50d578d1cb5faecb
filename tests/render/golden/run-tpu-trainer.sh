#!/usr/bin/env bash
# Runs the program on one host. The same text on every host: what differs comes from the environment.
# shellcheck disable=SC2317 # of the functions for claims not every script needs all
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@"
set -euo pipefail

orch_fail() { # what failed, and what to do next
  printf 'run: %s\n' "$1" >&2
  if [ -n "${2:-}" ]; then printf '  next: %s\n' "$2" >&2; fi
  exit 1
}
for orch_name in HOME ORCH_RANK ORCH_NUM_HOSTS ORCH_COORDINATOR; do
  [ -n "${!orch_name:-}" ] || orch_fail "$orch_name is not set" 'start it with orch, or export the variables of docs/environment.md'
done
export ORCH_HOST_DIR="${ORCH_HOST_DIR:-$HOME/.orch/host}" # started without orch
[ -n "${ORCH_PYTHON:-}" ] || ORCH_PYTHON=$HOME/.orch/venv/bin/python
# Nothing is imported from the working folder, by this process and by those that it starts (Python 3.11, "-P" and
# "PYTHONSAFEPATH"). An empty or relative entry of PYTHONPATH would mean that folder.
orch_listed=$(printf '%s' "${PYTHONPATH:-}" | tr ':' '\n' | { grep '^/' || true; } | paste -s -d : -)
export ORCH_PYTHON PYTHONSAFEPATH=1 PYTHONPATH="$ORCH_HOST_DIR/trainer${orch_listed:+:$orch_listed}"
command -v -- "$ORCH_PYTHON" >/dev/null || orch_fail "there is no Python at $ORCH_PYTHON" 'orch launch again: setup makes it'

# A reboot ends the mounts of local disks and buckets, and what is there then is an empty folder: see templates/mount/.
for orch_mount in "$ORCH_HOST_DIR"/scratch.sh "$ORCH_HOST_DIR"/mounts/*.sh; do
  if [ -e "$orch_mount" ]; then
    bash -- "$orch_mount" || orch_fail 'a disk or a bucket is not mounted any more' "read the line above; without it: rm $orch_mount"
  fi
done

# A name that is set already, by `envs` or by the image, is left alone, here and below.
orch_head=${ORCH_COORDINATOR%:*}
orch_head=${orch_head#\[}
orch_head=${orch_head%\]}
export MASTER_ADDR="${MASTER_ADDR-$orch_head}" MASTER_PORT="${MASTER_PORT-${ORCH_COORDINATOR##*:}}"

# A process that outlived its job can still hold the chips. TERM first and with patience: after an immediate KILL libtpu has
# not reset the chip, and the next start nearly always fails (vllm-project/tpu-inference PR 2629).
orch_dev=${ORCH_DEV_DIR:-/dev}
orch_root() { # with the rights of root where we may have them, else with our own
  if [ "$(id -u)" -ne 0 ] && sudo -n true 2>/dev/null; then sudo -n "$@"; else "$@"; fi
}
# Claims: which process may do what only one may do. A claim is a file with a number in a folder, made by link(2), which is
# atomic on NFS as well: of the temporary file's links the second is the proof, as an answer may be lost (Linux man-pages,
# open(2), "O_EXCL", read November 2026). flock is not used below home: NFS may lack it, or keep a lock of a dead host.
# Its line is "MACHINE BOOT PID START": BOOT is the boot id with the number of the process ids' namespace, START field 22 of
# /proc/PID/stat. An empty file is a claim that was given back. The highest number counts, and a claim that no one holds any
# more is followed by the next number, so that of two processes that find it so only one gets it.
# In the folder of a rank, a claim of another boot is stale. Elsewhere it may be another host's, whose process ids mean
# nothing here: it is held as long as its time moves, and so is one that cannot be read. nfs(5), acregmax: times of files may
# be 60 s old. A time far ahead is not that of a holder either: the file server's clock was set back.
orch_find_boot() {
    orch_boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)/$(readlink /proc/self/ns/pid 2>/dev/null | tr -dc 0-9)
}
orch_runs() { # words of a claim: whether its process runs on this host
    [ "$2" = "$orch_boot" ] && { read -r orch_stat <"/proc/$3/stat"; } 2>/dev/null || return 1
    # shellcheck disable=SC2086 # fields, from the third on
    set -- "$4" ${orch_stat##*) }
    [ "$2" != Z ] && [ "$1" = "${21}" ]
}
orch_find_claim() { # folder; sets orch_number to the newest claim's, 0 for none, and orch_words to its line
    orch_number=0 orch_words=
    for orch_file in "$1"/[0-9]*; do
        orch_file=${orch_file##*/}
        case $orch_file in *[!0-9]* | 0* | ???????????????????*) continue ;; esac # no number that was counted up to
        [ "$orch_file" -le "$orch_number" ] || orch_number=$orch_file
    done
    [ "$orch_number" = 0 ] || { read -r orch_words <"$1/$orch_number"; } 2>/dev/null \
        || [ ! -s "$1/$orch_number" ] || orch_words='unread unread - -'
}
orch_is_held() { # folder: whether a process holds its newest claim
    [ -n "${orch_boot:-}" ] || orch_find_boot
    orch_find_claim "$1"
    # shellcheck disable=SC2086 # four words
    set -- "$1" $orch_words
    [ $# = 5 ] || return 1
    if [ "$3" = "$orch_boot" ]; then
        orch_runs "$2" "$3" "$4" "$5"
        return
    fi
    case $1 in "$ORCH_HOST_DIR"/*) return 1 ;; esac
    orch_file=$1/.now-${ORCH_HOST_DIR##*/}.$$
    rm -f -- "$orch_file" # of a process that was killed and had this number
    true >"$orch_file" || return 0 # without the file system's own time nothing is known
    # shellcheck disable=SC2046 # two numbers: seconds by the file system's clock
    set -- $(stat -c %Y -- "$orch_file" "$1/$orch_number" 2>/dev/null)
    rm -f -- "$orch_file"
    [ $# = 2 ] || return 1
    set -- "$(($1 - $2))"
    [ "${1#-}" -lt "${ORCH_CLAIM_SECONDS:-180}" ]
}
orch_take_claim() { # folder; sets orch_claim to the file, or fails when the claim is held
    mkdir -p -- "$1" || return 1
    ! orch_is_held "$1" || return 1
    orch_claim=$1/$((orch_number + 1))
    orch_file=$1/.new-${ORCH_HOST_DIR##*/}.$$
    read -r orch_stat <"/proc/$$/stat" || return 1
    # shellcheck disable=SC2086 # fields, from the third on
    set -- "$1" ${orch_stat##*) }
    rm -f -- "$orch_file" # of a process that was killed and had this number: it may be another link of its claim
    printf '%s\n' "${ORCH_HOST_DIR##*-} $orch_boot $$ ${21}" >"$orch_file" || return 1
    ln -- "$orch_file" "$orch_claim" 2>/dev/null || :
    orch_words=$(stat -c %h -- "$orch_file")
    rm -f -- "$orch_file"
    [ "$orch_words" = 2 ] || return 1
    orch_find_claim "$1"
    if [ "$orch_claim" != "$1/$orch_number" ]; then # it was an old number, which had been deleted
        rm -f -- "$orch_claim"
        return 1
    fi
    for orch_file in "$1"/[0-9]*; do # never a later one: this process may have slept here, and lost the claim
        [ "${orch_file##*/}" -ge "$orch_number" ] || rm -f -- "$orch_file"
    done 2>/dev/null
}
orch_await_claim() { # folder, tenths of a second; fails after that time
    orch_tries=$2
    until orch_take_claim "$1"; do
        [ "$orch_tries" -gt 0 ] || return 1
        orch_tries=$((orch_tries - 1))
        sleep 0.1
    done
}
orch_give_claim() { true >"$orch_claim"; }
orch_find_open() { # ids of the processes that have a file open which matches one of the patterns
  local pattern
  for pattern in "$@"; do
    orch_root find /proc/[0-9]*/fd -lname "$orch_dev/$pattern" 2>/dev/null || true
  done | sed -n 's|^/proc/\([0-9]*\)/.*|\1|p' | sort -un
}
orch_variable() { # process, name: the value in its environment, where we may read that
  orch_root cat "/proc/$1/environ" 2>/dev/null | sed -z -n "s/^$2=//p" | tail -z -n 1 | tr -d '\0' || true
}
orch_owner_lives() { # true when a process belongs to a job of ours whose claim is still held
  local job
  job=$(orch_variable "$1" ORCH_JOB_DIR)
  [ -n "$job" ] && orch_is_held "$job/claim"
}
orch_sort_holders() { # of orch_holders into orch_stale, and orch_busy: those of a job that still runs
  local pid
  orch_stale='' orch_busy=''
  for pid in $(orch_holders); do
    if orch_owner_lives "$pid"; then orch_busy+=" $pid"; else orch_stale+=" $pid"; fi
  done
}
orch_clear() { # ends stale holders: TERM, up to 10 s, KILL, up to 10 s
  local pid signal until
  orch_sort_holders
  for signal in TERM KILL; do
    [ -n "$orch_stale" ] || break
    printf 'SIG%s to processes that still hold the accelerator:%s\n' "$signal" "$orch_stale"
    for pid in $orch_stale; do orch_root kill "-$signal" "$pid" 2>/dev/null || true; done
    until=$((SECONDS + 11)) # SECONDS counts whole ones
    while [ -n "$orch_stale" ] && [ "$SECONDS" -lt "$until" ]; do
      sleep 0.2
      orch_sort_holders
    done
  done
  [ -z "$orch_stale" ] || orch_fail "processes that hold the accelerator do not end:$orch_stale" "sudo kill -KILL$orch_stale"
  [ -z "$orch_busy" ] || printf 'the accelerator is in use by another job:%s\n' "$orch_busy" >&2
}
orch_holders() { orch_find_open 'accel*' 'vfio/[0-9]*'; }
# TPU chips are /dev/accel* (v2 to v4) or /dev/vfio/<number> (v5e and later).
if compgen -G "$orch_dev/accel*" >/dev/null || compgen -G "$orch_dev/vfio/[0-9]*" >/dev/null; then
  orch_clear
  # The lock goes last: without a holder it is stale (jax issue 10192), with one it must stay.
  orch_lock=${ORCH_LIBTPU_LOCKFILE:-/tmp/libtpu_lockfile}
  if [ -z "$orch_busy" ] && [ -e "$orch_lock" ]; then
    orch_root rm -f -- "$orch_lock" || orch_fail "cannot remove $orch_lock" "sudo rm $orch_lock"
  fi
fi

# A chip that is missing shows only when a collective hangs. One node in /dev is one chip: accel* (v2 to v4), or a number in
# vfio (v5e and later); Ray counts them so too (python/ray/_private/accelerators/tpu.py, 2026).
orch_devices() { # how many of them the kernel shows
  case $1 in
    tpu)
      local nodes=accel
      compgen -G "${ORCH_DEV_DIR:-/dev}/accel*" >/dev/null || nodes=vfio/
      compgen -G "${ORCH_DEV_DIR:-/dev}/${nodes}[0-9]*" | wc -l || true
      ;;
    efa) cat "${ORCH_SYS_DIR:-/sys}"/bus/pci/devices/*/device 2>/dev/null | grep -c '^0xefa' || true ;;
  esac
}
orch_expect() { # true when at least so many exist at one of three checks: devices appear late on some types
  local look
  for look in 1 2 3; do
    orch_found=$(orch_devices "$1")
    [ "$orch_found" -lt "$2" ] || return 0
    [ "$look" -eq 3 ] || sleep 5
  done
  return 1
}
orch_chips=${ORCH_CHIPS_PER_HOST:-0}
case $(printf '%s' "${ORCH_ACCELERATOR:-}" | tr '[:upper:]' '[:lower:]') in
  tpu* | v[2-6]*-[0-9]* | v7x*) ;;
  *) orch_chips=0 ;;
esac
if [ "$orch_chips" -gt 0 ] && [ "${ORCH_TPU_CHECK:-1}" != 0 ]; then
  orch_expect tpu "$orch_chips" || orch_fail "this host shows $orch_found TPU chips of $orch_chips" \
    'on the host: ls /dev/accel* /dev/vfio; launch again for other machines, or set ORCH_TPU_CHECK=0 in envs to continue'
fi

# TorchTPU: one process per device, and what all of them must agree on is decided before they start, by its own function; it
# leaves alone what is set. Ranks stay in our order, whose first host is the one that all meet at. Source: torch_tpu 0.2.0,
# docstring of set_tpu_launch_env (November 2026). Without a chip it would ask the metadata server for half a minute.
orch_each=1 # devices of a chip: a TPU7x shows as two
case ${ORCH_ACCELERATOR:-} in tpu7x* | v7x* | tpu-v7x*) orch_each=2 ;; esac
[ -n "${ORCH_RANKS_PER_HOST:-}" ] || ORCH_RANKS_PER_HOST=$((${ORCH_CHIPS_PER_HOST:-0} * orch_each))
[ "$ORCH_RANKS_PER_HOST" -gt 0 ] \
  || orch_fail "how many chips has a host of ${ORCH_ACCELERATOR:-this slice}?" 'set ORCH_RANKS_PER_HOST in envs'
export TORCH_TPU_XPROF_SESSION_ID="${TORCH_TPU_XPROF_SESSION_ID-$((${ORCH_JOB_ID:-1} * 1000 + ${ORCH_ATTEMPT:-1}))}"
if [ "$ORCH_NUM_HOSTS" -gt 1 ]; then
  orch_hosts=$(printf '%s' "$ORCH_HOST_IPS" | tr '\n' ',')
  export TPU_WORKER_HOSTNAMES="${TPU_WORKER_HOSTNAMES-$orch_hosts}" JOB_COMPLETION_INDEX="${JOB_COMPLETION_INDEX-$ORCH_RANK}"
  export NODE_RANK="${NODE_RANK-$ORCH_RANK}"
  orch_topology=4x4 # its form is 2,4,1 for 2x4; then the devices of a chip, where there are several
  orch_topology=${orch_topology//x/,}
  case $orch_topology in *,*,*) ;; *) orch_topology+=,1 ;; esac
  [ "$orch_each" -eq 1 ] || orch_topology+=,$orch_each
  export TORCH_TPU_TOPOLOGY="${TORCH_TPU_TOPOLOGY-$orch_topology}"
fi
orch_launch=$("$ORCH_PYTHON" -c '
import os, shlex, sys
before = dict(os.environ)
import torch
from torch.tpu.distributed import set_tpu_launch_env
set_tpu_launch_env(nnodes=int(sys.argv[1]), nproc_per_node=int(sys.argv[2]))
for name, value in os.environ.items():
    if before.get(name) != value:
        print(f"orch-env export {name}={shlex.quote(value)}")
' "$ORCH_NUM_HOSTS" "$ORCH_RANKS_PER_HOST" | sed -n 's/^orch-env //p') || orch_fail 'TorchTPU reports no environment' 'read the lines above'
eval "$orch_launch"

export PYTHONUNBUFFERED="${PYTHONUNBUFFERED-1}"
cd -- "$HOME"
export ORCH_WORKDIR="$PWD"
# The newest working directory by its usual names: ours, and the dialect's. What the program made itself stays.
[ -e "$HOME/sky_workdir" ] || ln -sfn -- . "$HOME/sky_workdir" || true
set -- "$ORCH_PYTHON" -m trainer \
  engine=torch \
  device=tpu \
  model=tiny \
  steps=120 \
  'data=file:///data/my books'
# One process per device, with the variables that torchrun sets. Not torchrun itself: when it is stopped it kills its workers
# after 30 s and ends with status 1 (torch 2.13, seen November 2026), and 75, "saved, run me again", would be lost.
orch_count=$ORCH_RANKS_PER_HOST
export ORCH_RANKS_PER_HOST TORCHELASTIC_RUN_ID="${ORCH_RUN_ID:-orch}"
export GROUP_RANK="$ORCH_RANK" LOCAL_WORLD_SIZE="$orch_count" WORLD_SIZE="$((ORCH_NUM_HOSTS * orch_count))"
trap ':' HUP INT TERM # a stop goes to every process of the job: wait for them, do not send it twice
orch_pids=()
for ((orch_at = 0; orch_at < orch_count; orch_at++)); do
  RANK=$((ORCH_RANK * orch_count + orch_at)) LOCAL_RANK=$orch_at "$@" &
  orch_pids[orch_at]=$!
done
orch_failed=0  # status of the first process that failed
orch_stopped=0 # 75 or 143 of one that was stopped
orch_end=0     # when the others are ended, on the clock of SECONDS
orch_left=$orch_count
while [ "$orch_left" -gt 0 ]; do
  { sleep 0.5 || true; } 2>/dev/null # a stop ends the sleep too; bash would tell of it
  for ((orch_at = 0; orch_at < orch_count; orch_at++)); do
    orch_pid=${orch_pids[orch_at]}
    if [ -z "$orch_pid" ] || kill -0 "$orch_pid" 2>/dev/null; then continue; fi
    orch_status=0
    wait "$orch_pid" || orch_status=$?
    orch_pids[orch_at]=''
    orch_left=$((orch_left - 1))
    case $orch_status in
      0) ;;
      75) orch_stopped=75 ;;
      143) [ "$orch_stopped" -ne 0 ] || orch_stopped=143 ;;
      *)
        printf 'run: the process of device %d ended with status %d\n' "$orch_at" "$orch_status" >&2
        if [ "$orch_failed" -eq 0 ]; then orch_failed=$orch_status orch_end=$((SECONDS + 10)); fi
        ;;
    esac
  done
  if [ "$orch_failed" -ne 0 ] && [ "$SECONDS" -ge "$orch_end" ]; then
    orch_signal=TERM
    [ "$SECONDS" -lt "$((orch_end + 10))" ] || orch_signal=KILL
    for orch_pid in "${orch_pids[@]}"; do
      [ -z "$orch_pid" ] || kill "-$orch_signal" "$orch_pid" 2>/dev/null || true
    done
  fi
done
[ "$orch_failed" -eq 0 ] || exit "$orch_failed"
exit "$orch_stopped"
