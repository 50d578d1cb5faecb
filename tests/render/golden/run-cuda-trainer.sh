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
# Setup has decided whether it is the image's: see templates/setup/cuda.sh.j2.
[ -n "${ORCH_PYTHON:-}" ] || ORCH_PYTHON=$(head -n 1 -- "$HOME/.orch/site/.orch-packages" 2>/dev/null) || true
[ -n "${ORCH_PYTHON:-}" ] || ORCH_PYTHON=$HOME/.orch/venv/bin/python
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

# NCCL over EFA: aws-ofi-nccl doc/efa-env-var.md (August 2026). Its plugin sets the rest by instance type; NCCL_IB_HCA and
# NCCL_NET_GDR_LEVEL do nothing there. Huge pages are off because data loaders that fork would run out of memory.
export FI_EFA_USE_HUGE_PAGE="${FI_EFA_USE_HUGE_PAGE-0}" NCCL_DEBUG="${NCCL_DEBUG-WARN}"
case $orch_head in
  127.* | ::1 | localhost) ;; # hosts that are one machine meet on its loopback interface
  *) export NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME-^docker,lo,veth}" ;;
esac

# GPUs behind NVSwitches compute only when the fabric manager has registered them; CUDA says "system not yet initialized"
# before that. Each goes from "Not Started" over "In Progress" to "Completed" (NVML API reference, "Fabric definitions";
# NVIDIA/NVSentinel issue 883, February 2026). A100 machines do not show it: there the service counts.
orch_fabric() { # the state of the first GPU; "N/A" without a fabric
  nvidia-smi -q -i 0 2>/dev/null | sed -n '/^ *Fabric *$/,$p' | sed -n 's/^ *State *: *//p' | head -n 1
}
if [ "${ORCH_FABRIC_CHECK:-1}" != 0 ] && command -v nvidia-smi >/dev/null; then
  orch_until=$((SECONDS + ${ORCH_FABRIC_SECONDS:-120}))
  while orch_state=$(orch_fabric) && case $orch_state in 'Not Started' | 'In Progress') true ;; *) false ;; esac; do
    [ "$SECONDS" -lt "$orch_until" ] || orch_fail "the fabric manager is not ready: $orch_state" \
      'on the host: systemctl status nvidia-fabricmanager; launch again, or set ORCH_FABRIC_CHECK=0 in envs to continue'
    sleep 5
  done
  if [ "${orch_state:-N/A}" = N/A ] && grep -qs '^0x068000' "${ORCH_SYS_DIR:-/sys}"/bus/pci/devices/*/class \
    && systemctl cat nvidia-fabricmanager >/dev/null 2>&1; then
    while ! systemctl is-active --quiet nvidia-fabricmanager; do
      [ "$SECONDS" -lt "$orch_until" ] || orch_fail 'the fabric manager does not run' \
        'on the host: systemctl status nvidia-fabricmanager; launch again, or set ORCH_FABRIC_CHECK=0 in envs to continue'
      sleep 5
    done
  fi
fi

orch_devices() { # how many of them the kernel shows
  case $1 in
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
  # NCCL falls back to TCP in silence when it cannot load aws-ofi-nccl (dstack#3069, nccl#959). So it is loaded here as NCCL
  # loads it, and the folders of the EFA installer are added to the path where it is found nowhere else.
  orch_plugin_loads() {
    "${ORCH_PYTHON:-python3}" -c '
import ctypes, os, sys
named = os.environ.get("NCCL_NET_PLUGIN", "")
for name in ([named, f"libnccl-net-{named}.so"] if named else ["libnccl-net.so", "libnccl-net-ofi.so", "libnccl-net-aws-ofi.so"]):
    try:
        ctypes.CDLL(name)
    except OSError as error:
        last = str(error)
    else:
        sys.exit(print(name))
sys.exit(last)
' 2>&1
  }
  if ! orch_plugin=$(orch_plugin_loads); then
    for orch_folder in "${ORCH_AMAZON_DIR:-/opt/amazon}"/{ofi-nccl/lib,ofi-nccl/lib/x86_64-linux-gnu,ofi-nccl/lib/aarch64-linux-gnu,aws-ofi-nccl/lib} \
      /opt/aws-ofi-nccl/lib /opt/aws-ofi-nccl/install/lib; do
      compgen -G "$orch_folder/libnccl-net*.so" >/dev/null || continue
      orch_before=${LD_LIBRARY_PATH-}
      export LD_LIBRARY_PATH="$orch_folder${orch_before:+:$orch_before}"
      if orch_plugin=$(orch_plugin_loads); then
        orch_plugin="$orch_folder/$orch_plugin"
        break
      fi
      export LD_LIBRARY_PATH="$orch_before"
    done
  fi
  orch_plugin_loads >/dev/null || orch_fail "NCCL would use TCP: its plugin for EFA does not load ($orch_plugin)" \
    "take AWS's image or install aws-ofi-nccl, and set LD_LIBRARY_PATH in envs; or set ORCH_EFA_CHECK=0 to continue"
  [ "$ORCH_RANK" != 0 ] || printf 'run: %s EFA interfaces on each host, plugin %s; with NCCL_DEBUG=INFO in envs, this line proves that NCCL uses them: %s\n' \
    "$orch_found" "$orch_plugin" 'NET/OFI Selected provider is efa'
fi

if [ -z "${ORCH_RANKS_PER_HOST:-}" ]; then
  ORCH_RANKS_PER_HOST=${ORCH_CHIPS_PER_HOST:-0}
  [ "$ORCH_RANKS_PER_HOST" -gt 0 ] || ORCH_RANKS_PER_HOST=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU') \
    || orch_fail 'this host shows no GPU' 'look at: nvidia-smi'
fi

export PYTHONUNBUFFERED="${PYTHONUNBUFFERED-1}"
cd -- "$HOME"
export ORCH_WORKDIR="$PWD"
# The newest working directory by its usual names: ours, and the dialect's. What the program made itself stays.
[ -e "$HOME/sky_workdir" ] || ln -sfn -- . "$HOME/sky_workdir" || true
orch_start() {
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
}
# How fast the hosts add up gradients. A plugin that is not found, or one slow link, shows here and not after a day.
if [ "$ORCH_NUM_HOSTS" -gt 1 ] && [ "${ORCH_NETWORK_CHECK:-1}" != 0 ]; then
  (
    orch_start "$ORCH_PYTHON" -m trainer network \
      engine=torch \
      device=cuda
  ) || exit
fi
# The smoke test, on all hosts together as the run will be: devices, data, loop, gradients, checkpoint, resume.
orch_smoke=0
(
  orch_start "$ORCH_PYTHON" -m trainer smoke \
    engine=torch \
    device=cuda \
    'data=file:///data/my books'
) || orch_smoke=$?
if [ "$orch_smoke" -ne 0 ]; then
  printf 'run: the smoke test failed (exit %d); the run was not begun\n' "$orch_smoke" >&2
  exit "$orch_smoke"
fi
orch_start "$ORCH_PYTHON" -m trainer \
  engine=torch \
  device=cuda \
  model=tiny \
  steps=120 \
  'data=file:///data/my books'
