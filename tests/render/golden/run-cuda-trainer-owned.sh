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

# A process that outlived its job can still hold the chips. TERM first and with patience: after an immediate KILL libtpu has
# not reset the chip, and the next start nearly always fails (vllm-project/tpu-inference PR 2629).
# These machines are not rented: only programs of this installation of orch are ended. Others are named, and refuse the start.
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
orch_is_ours() { # process: with the mark of this installation, and of this user or root (containers): anyone can set a mark
  local user
  [ -n "${ORCH_INSTALLATION:-}" ] && [ "$(orch_variable "$1" ORCH_INSTALLATION)" = "$ORCH_INSTALLATION" ] || return 1
  user=$(sed -n 's/^Uid:[[:space:]]*\([0-9]*\).*/\1/p' "/proc/$1/status" 2>/dev/null) || true
  [ "$user" = "$(id -u)" ] || [ "$user" = 0 ]
}
orch_owner_lives() { # true when a process belongs to a job of ours whose claim is still held
  local job
  job=$(orch_variable "$1" ORCH_JOB_DIR)
  [ -n "$job" ] && orch_is_held "$job/claim"
}
orch_sort_holders() { # of orch_holders into orch_stale, and orch_busy: those of a job that still runs; orch_others: not ours
  local pid others=''
  orch_stale='' orch_busy=''
  for pid in $(orch_holders); do
    if ! orch_is_ours "$pid"; then
      others+=" $pid "
      continue
    fi
    if orch_owner_lives "$pid"; then orch_busy+=" $pid"; else orch_stale+=" $pid"; fi
  done
  orch_others=''
  [ -n "$others" ] || return 0
  for pid in $(orch_holders); do # one that ended meanwhile had no mark any more
    case $others in *" $pid "*) orch_others+=" $pid" ;; esac
  done
}
orch_describe() { # process: its user, command and start
  local words fields start=''
  words=$(tr '\0\n' '  ' 2>/dev/null <"/proc/$1/cmdline" | cut -c 1-100) || true
  fields=$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20) || true # clock ticks from boot to its start
  if [ -n "$fields" ]; then
    start=$(($(sed -n 's/^btime //p' /proc/stat) + fields / $(getconf CLK_TCK)))
    start=$(date -d "@$start" '+%F %T %Z')
  fi
  printf '  user %s: process %s (%s) since %s' "$(stat -c %U "/proc/$1" 2>/dev/null || echo unseen)" "$1" \
    "${words:-unseen}" "${start:-unseen}"
}
orch_refuse() { # names orch_others, at most three of them
  local pid text count=0
  text='refused: the accelerator is in use by processes that this installation of orch did not start:'
  for pid in $orch_others; do
    count=$((count + 1))
    if [ "$count" -eq 4 ]; then
      text+=", and $(($(wc -w <<<"$orch_others") - 3)) more"
      break
    fi
    text+=$'\n'$(orch_describe "$pid")
  done
  if [ "${ORCH_HOLDERS_CHECK:-1}" = 0 ]; then
    printf 'started beside others (ORCH_HOLDERS_CHECK=0), %s\n' "${text#refused: }" >&2
    return
  fi
  (orch_fail "$text" 'ask their users to end them, or choose other machines; ORCH_HOLDERS_CHECK=0 in envs starts beside them') || exit 6
}
orch_warn_unseen() { # who may hold the accelerator, and cannot be seen
  local count
  count=$(orch_root find /proc/[0-9]*/fd -maxdepth 0 ! -readable 2>/dev/null | wc -l) || true
  [ "$count" -eq 0 ] \
    || printf 'warning: %d processes of other users are unseen without root: they may hold the accelerator\n' "$count" >&2
}
orch_clear() { # ends stale holders: TERM, up to 10 s, KILL, up to 10 s
  local pid signal until named
  orch_sort_holders
  named=$orch_others
  [ -z "$orch_others" ] || orch_refuse
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
  [ "$orch_others" = "$named" ] || [ -z "$orch_others" ] || orch_refuse # who began while ours were ended
  [ -z "$orch_stale" ] || orch_fail "processes that hold the accelerator do not end:$orch_stale" "sudo kill -KILL$orch_stale"
  [ -z "$orch_busy" ] || printf 'the accelerator is in use by another job:%s\n' "$orch_busy" >&2
}
# Whoever computes on a GPU that this launch uses: the devices of CUDA_VISIBLE_DEVICES, of these the first
# ORCH_CHIPS_PER_HOST. A number of CUDA_VISIBLE_DEVICES is taken as that of nvidia-smi; an instance of MIG is not looked up.
# The queries and their columns: nvidia-smi(1) of driver 610.43, May 2026; fields with ", " between them.
orch_smi() { timeout 30 nvidia-smi "--query-$1" --format=csv,noheader 2>/dev/null; }
orch_holders() {
  local gpus apps
  if gpus=$(orch_smi gpu=index,uuid) && apps=$(orch_smi compute-apps=gpu_uuid,pid); then
    awk -F ', *' -v visible="${CUDA_VISIBLE_DEVICES-all}" -v most="${ORCH_CHIPS_PER_HOST:-0}" '
      FILENAME == ARGV[1] { uuid[$1] = $2; order[++count] = $2; next }
      FNR == 1 {
        words = visible == "all" ? count : split(visible, word, ",")
        for (at = 1; at <= words && (most == 0 || at <= most); at++) {
          if (visible == "all") used[order[at]] = 1
          else if (word[at] in uuid) used[uuid[word[at]]] = 1
          else if (word[at] ~ /^GPU-/) for (i = 1; i <= count; i++) { if (index(order[i], word[at]) == 1) used[order[i]] = 1 }
        }
      }
      $1 in used { print $2 }' <(printf '%s\n' "$gpus") <(printf '%s\n' "$apps")
  else
    orch_find_open 'nvidia[0-9]*'
  fi | sort -un | while read -r pid; do
    # Programs that are there for the machine, not to compute. The kernel keeps the first 15 characters of a name.
    case $(cat "/proc/$pid/comm" 2>/dev/null) in
      # Display servers compute at times ("C+G" in nvidia-smi(1) of driver 610.43, May 2026).
      X | Xorg | Xwayland | gnome-shell | kwin_x11 | kwin_wayland | sway | weston) ;;
      nvidia-persiste) ;; # nvidia-persistenced(1) of driver 535.161, read November 2026
      # NVIDIA DCGM documentation, "Command Line", read November 2026.
      nv-hostengine | dcgmi | dcgm-exporter) ;;
      *) printf '%s\n' "$pid" ;;
    esac
  done
}
if compgen -G "$orch_dev/nvidia[0-9]*" >/dev/null || command -v nvidia-smi >/dev/null; then
  orch_smi gpu=index >/dev/null || orch_warn_unseen
  orch_clear
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
orch_start "$ORCH_PYTHON" -m trainer \
  engine=torch \
  device=cuda \
  model=tiny \
  steps=120 \
  'data=file:///data/my books'
