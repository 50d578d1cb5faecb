#!/usr/bin/env bash
# Runs the program on one host. The same text on every host: what differs comes from the environment.
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

# A reboot ends the mounts of local disks and buckets, and what is there then is an empty folder: see templates/mount/.
for orch_mount in "$HOME"/.orch/scratch.sh "$HOME"/.orch/mounts/*.sh; do
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

orch_devices() { # how many of them the kernel shows
  case $1 in
    efa) cat "${ORCH_SYS_DIR:-/sys}"/bus/pci/devices/*/device 2>/dev/null | grep -c '^0xefa' || true ;;
  esac
}
orch_expect() { # true when there are at least so many within three looks: devices come up late on some types
  local look
  for look in 1 2 3; do
    orch_found=$(orch_devices "$1")
    [ "$orch_found" -lt "$2" ] || return 0
    [ "$look" -eq 3 ] || sleep 5
  done
  return 1
}
# Hosts that lack an EFA interface would talk over TCP, far slower, and nothing would say so. The numbers are those
# of the kernel's driver (linux, drivers/infiniband/hw/efa/efa_main.c, 2026); the three looks are AWS's own health check's.
if [ "$ORCH_NUM_HOSTS" -gt 1 ] && [ "${ORCH_EFA_COUNT:-0}" -gt 0 ] && [ "${ORCH_EFA_CHECK:-1}" != 0 ]; then
  orch_expect efa "$ORCH_EFA_COUNT" \
    || orch_fail "this host shows $orch_found EFA interfaces of $ORCH_EFA_COUNT" \
      'on the host: lspci | grep -i efa; launch again for other machines, or set ORCH_EFA_CHECK=0 in envs to go on'
  [ "$ORCH_RANK" != 0 ] || printf 'run: %s EFA interfaces on each host; with NCCL_DEBUG=INFO in envs, this line proves that NCCL uses them: %s\n' \
    "$orch_found" 'NET/OFI Selected provider is efa'
fi

# From here on it is an ordinary bash script: our names and options are gone, the last command's status counts.
case ":$PATH:" in *":$HOME/.local/bin:"*) ;; *) export PATH="$HOME/.local/bin:$PATH" ;; esac
export PYTHONUNBUFFERED="${PYTHONUNBUFFERED-1}"
cd -- "$HOME"/orch_workdir || orch_fail 'the working directory is not here' 'orch launch again: it is copied before this'
set +euo pipefail
for orch_conda in "$HOME/miniconda3" "$HOME/miniforge3" "$HOME/anaconda3" /opt/conda; do
  # shellcheck disable=SC1091 # the file is conda's own, on the host
  if [ -r "$orch_conda/etc/profile.d/conda.sh" ]; then . "$orch_conda/etc/profile.d/conda.sh"; fi
done
unset -f orch_expect orch_devices orch_told_slices orch_wait_turn orch_sort_holders orch_fail orch_root orch_holders orch_owner_lives orch_clear orch_apt orch_find_python orch_make_venv orch_dropped orch_beside
unset -v "${!orch_@}"
# ---- program of the task ----
python train.py --rank "$ORCH_RANK"
