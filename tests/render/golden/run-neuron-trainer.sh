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
# Python: the environment that AWS put into the image, unless ORCH_PYTHON names another. JAX is in
# /opt/aws_neuronx_venv_jax_*; PyTorch in /opt/aws_neuronx_venv_torch_neuronx_* of Neuron 2.33 and later (Trn2, Trn3), up to
# 2.31 in /opt/aws_neuronx_venv_pytorch_* (also Trn1). Sources: AWS Neuron documentation, "Neuron DLAMI User Guide" (2.28
# to 2.32) and "Update PyTorch on a Deep Learning AMI" (2.33.0, October 2026).
for orch_name in 'torch_neuronx_*' 'pytorch_[0-9]_[0-9]' 'pytorch_[0-9]_[0-9][0-9]' pytorch; do
  [ -z "${ORCH_PYTHON:-}" ] || break
  ORCH_PYTHON=$(compgen -G "${ORCH_VENVS_DIR:-/opt}/aws_neuronx_venv_$orch_name/bin/python" | sort -V | tail -n 1) || true
done
# The compiler is found by name, and it is in there too.
case ${ORCH_PYTHON:-} in /*) export PATH="${ORCH_PYTHON%/*}:/opt/aws/neuron/bin:$PATH" ;; esac
[ -n "${ORCH_PYTHON:-}" ] || orch_fail 'this image has no PyTorch for Neuron' \
  'trn1: an image of Neuron SDK 2.28; trn2: one of 2.33 or later; or set ORCH_PYTHON in envs'
# Nothing is imported from the working folder, by this process and by those that it starts (Python 3.11, "-P" and
# "PYTHONSAFEPATH"). An empty or relative entry of PYTHONPATH would mean that folder.
orch_listed=$(printf '%s' "${PYTHONPATH:-}" | tr ':' '\n' | { grep '^/' || true; } | paste -s -d : -)
export ORCH_PYTHON PYTHONSAFEPATH=1 PYTHONPATH="$ORCH_HOST_DIR/trainer:$HOME/.orch/site${orch_listed:+:$orch_listed}"
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

# Cores that the frameworks see: 2 a chip on Trainium, 8 a chip on Trainium2 and 3, of which 2 make one by default.
# Sources: AWS Neuron documentation, "Logical NeuronCore configuration" and the distributed guides (SDK 2.28 to 2.33, 2026).
orch_chips=${ORCH_CHIPS_PER_HOST:-0}
if [ -z "${ORCH_RANKS_PER_HOST:-}" ]; then
  orch_known=$orch_chips # a type that orch does not list has as many as the kernel shows
  [ "$orch_known" -gt 0 ] || orch_known=$(compgen -G "${ORCH_DEV_DIR:-/dev}/neuron[0-9]*" | wc -l) || true
  case $(printf '%s' "${ORCH_ACCELERATOR:-}" | tr '[:upper:]' '[:lower:]') in
    trn[23]* | trainium[23]*) ORCH_RANKS_PER_HOST=$((orch_known * 8 / ${NEURON_LOGICAL_NC_CONFIG:-2})) ;;
    trn1* | trainium | trainium:* | trainium1* | inf2*) ORCH_RANKS_PER_HOST=$((orch_known * 2)) ;;
    *) ORCH_RANKS_PER_HOST=0 ;;
  esac
fi
[ "$ORCH_RANKS_PER_HOST" -gt 0 ] \
  || orch_fail "how many cores has ${ORCH_ACCELERATOR:-this accelerator}?" 'set ORCH_RANKS_PER_HOST in envs'
export ORCH_RANKS_PER_HOST
if [ "${NEURON_LOGICAL_NC_CONFIG:-2}" = 1 ]; then # the compiler must get the same
  case ${NEURON_CC_FLAGS-} in *-lnc* | *--logical-nc-config*) ;; *) export NEURON_CC_FLAGS="${NEURON_CC_FLAGS:+$NEURON_CC_FLAGS }--lnc=1" ;; esac
fi

# A chip that is missing shows only when a collective hangs. One node in /dev is one chip; neuron-ls shows more.
orch_devices() { # how many of them the kernel shows
  case $1 in
    chips) compgen -G "${ORCH_DEV_DIR:-/dev}/neuron[0-9]*" | wc -l || true ;;
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
if [ "$orch_chips" -gt 0 ] && [ "${ORCH_NEURON_CHECK:-1}" != 0 ]; then
  orch_expect chips "$orch_chips" \
    || orch_fail "this host shows $orch_found Neuron chips of $orch_chips" \
      'on the host: neuron-ls; launch again for other machines, or set ORCH_NEURON_CHECK=0 in envs to go on'
fi
# Chips without links to each other hang collectives too. neuron-ls prints a list with "neuron_device" and "connected_to", which
# is null on types of one chip. 16 chips of Trainium 1 and 2 form a torus, with four links each. Sources: AWS Neuron
# documentation, "Neuron LS User Guide" (2.28, 2026) and "Neuron scheduler extension" (2026).
orch_ls=$(command -v neuron-ls || command -v "${ORCH_VENVS_DIR:-/opt}/aws/neuron/bin/neuron-ls" || true)
if [ "$orch_chips" -gt 1 ] && [ "${ORCH_NEURON_CHECK:-1}" != 0 ]; then
  if [ -z "$orch_ls" ] || ! command -v python3 >/dev/null; then
    printf 'run: there is no neuron-ls or no python3 on this host, so it is not known whether its chips are connected\n' >&2
  else
    orch_links=0
    case $(printf '%s' "${ORCH_ACCELERATOR:-}" | tr '[:upper:]' '[:lower:]') in
      trn[12]* | trainium | trainium:* | trainium[12]*) [ "$orch_chips" -ne 16 ] || orch_links=4 ;;
    esac
    orch_problem=$({ "$orch_ls" --json-output 2>&1 || true; } | python3 -c '
import json, sys
chips, links, text = int(sys.argv[1]), int(sys.argv[2]), sys.stdin.read()
try:
    found = {one["neuron_device"]: set(one["connected_to"] or ()) for one in json.loads(text)}
except (ValueError, TypeError, KeyError):
    sys.exit(print("neuron-ls cannot be read:", " ".join(text.split())[:200]))
if len(found) < chips:
    sys.exit(print(f"neuron-ls shows {len(found)} chips of {chips}"))
if not links and not any(found.values()):
    sys.exit() # a type whose links neuron-ls does not show
for chip, peers in sorted(found.items()):
    found[chip] = {peer for peer in peers & set(found) if chip in found[peer]}
    if len(found[chip]) < links:
        sys.exit(print(f"chip {chip} has {len(found[chip])} links of {links}"))
reached, ahead = set(), [min(found)]
while ahead:
    chip = ahead.pop()
    if chip not in reached:
        reached.add(chip)
        ahead += found[chip]
if len(reached) < len(found):
    print(f"chip {min(found)} reaches {len(reached) - 1} of {len(found) - 1} others")
' "$orch_chips" "$orch_links") || orch_problem='neuron-ls failed'
    [ -z "$orch_problem" ] || orch_fail "this host's chips are not all connected: $orch_problem" \
      "on the host: $orch_ls --topology; launch again for other machines, or set ORCH_NEURON_CHECK=0 in envs to continue"
  fi
fi
# Hosts without an EFA interface would silently use TCP, which is far slower. The numbers are those
# of the kernel's driver (linux, drivers/infiniband/hw/efa/efa_main.c, 2026); AWS's own health check tries three times too.
if [ "$ORCH_NUM_HOSTS" -gt 1 ] && [ "${ORCH_EFA_COUNT:-0}" -gt 0 ] && [ "${ORCH_EFA_CHECK:-1}" != 0 ]; then
  orch_expect efa "$ORCH_EFA_COUNT" \
    || orch_fail "this host shows $orch_found EFA interfaces of $ORCH_EFA_COUNT" \
      'on the host: lspci | grep -i efa; launch again for other machines, or set ORCH_EFA_CHECK=0 in envs to continue'
  # Then whether libfabric sees them: one "FI_EP_RDM" for each (EC2 User Guide, "Get started with EFA and NCCL", 2026).
  orch_fi_info=$(command -v fi_info || command -v "${ORCH_AMAZON_DIR:-/opt/amazon}/efa/bin/fi_info" || true)
  if [ -z "$orch_fi_info" ]; then
    printf 'run: there is no fi_info on this host, so it is not known whether libfabric finds the EFA interfaces\n' >&2
  else
    orch_domains=$("$orch_fi_info" -p efa -t FI_EP_RDM 2>/dev/null | sed -n 's/^ *domain: *//p' | sort -u | wc -l) || orch_domains=0
    [ "$orch_domains" -ge "$ORCH_EFA_COUNT" ] || orch_fail "libfabric finds $orch_domains EFA interfaces of $ORCH_EFA_COUNT" \
      "on the host: $orch_fi_info -p efa; take AWS's image or install EFA, or set ORCH_EFA_CHECK=0 in envs to continue"
  fi
fi

# The runtime meets on its own port, beside that of the program; the kernel must not give it to another process.
export NEURON_RT_ROOT_COMM_ID="${NEURON_RT_ROOT_COMM_ID-$orch_head:$((${ORCH_COORDINATOR##*:} + 100))}"
orch_port=${NEURON_RT_ROOT_COMM_ID##*:}
if read -r orch_low orch_high 2>/dev/null </proc/sys/net/ipv4/ip_local_port_range \
  && [[ $orch_port =~ ^[0-9]{1,5}$ ]] && [ "$orch_port" -ge "$orch_low" ] && [ "$orch_port" -le "$orch_high" ]; then
  orch_kept=$(cat /proc/sys/net/ipv4/ip_local_reserved_ports 2>/dev/null) || true
  orch_kept=net.ipv4.ip_local_reserved_ports=${orch_kept:+$orch_kept,}$orch_port
  { sysctl -q -w "$orch_kept" || sudo -n sysctl -q -w "$orch_kept"; } >/dev/null 2>&1 || true
fi
if [ "$ORCH_NUM_HOSTS" -gt 1 ]; then
  # Required by Neuron's multi-node guide, unlike with NCCL. Fork safety: only for kernels before 5.15.
  export FI_PROVIDER="${FI_PROVIDER-efa}" FI_EFA_USE_DEVICE_RDMA="${FI_EFA_USE_DEVICE_RDMA-1}"
  if [ "$(printf '%s\n' 5.15 "$(uname -r)" | sort -V | head -n 1)" != 5.15 ]; then
    export FI_EFA_FORK_SAFE="${FI_EFA_FORK_SAFE-1}"
  fi
fi
# Compiling takes minutes: kept in the run's bucket where Neuron can, so that no attempt does it twice.
orch_cache=$ORCH_HOST_DIR/cache/neuron
case ${ORCH_CHECKPOINT_URI:-} in s3://*/checkpoints) orch_cache=${ORCH_CHECKPOINT_URI%/checkpoints}/neuron-cache ;; esac
export NEURON_COMPILE_CACHE_URL="${NEURON_COMPILE_CACHE_URL-$orch_cache}" MALLOC_ARENA_MAX="${MALLOC_ARENA_MAX-64}"
ulimit -S -n 65536 2>/dev/null || true # many cores open many files; where it may not be raised, it stays
# TorchNeuron has its own cache, a folder; in /tmp, where it is by default, it would not outlive a reboot.
# Source: AWS Neuron documentation, "TorchNeuron environment variables" (SDK 2.33, October 2026).
export TORCH_NEURONX_NEFF_CACHE_DIR="${TORCH_NEURONX_NEFF_CACHE_DIR-$ORCH_HOST_DIR/cache/neff}"

# An old process keeps its cores reserved (aws-neuron-samples issue 44).
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
orch_holders() { orch_find_open 'neuron[0-9]*'; }
if compgen -G "$orch_dev/neuron[0-9]*" >/dev/null; then
  orch_clear
fi

export PYTHONUNBUFFERED="${PYTHONUNBUFFERED-1}"
cd -- "$HOME"
export ORCH_WORKDIR="$PWD"
# The newest working directory by its usual names: ours, and the dialect's. What the program made itself stays.
[ -e "$HOME/sky_workdir" ] || ln -sfn -- . "$HOME/sky_workdir" || true
set -- "$ORCH_PYTHON" -m trainer \
  engine=torch \
  device=neuron \
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
