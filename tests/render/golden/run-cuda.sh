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

# A reboot ends the mounts of buckets, and what is there then is an empty folder: see templates/mount/gcsfuse.sh.j2.
for orch_mount in "$HOME"/.orch/mounts/*.sh; do
  if [ -e "$orch_mount" ]; then
    bash -- "$orch_mount" || orch_fail 'a bucket is not mounted any more' "read the line above; without it: rm $orch_mount"
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

# From here on it is an ordinary bash script: our names and options are gone, the last command's status counts.
case ":$PATH:" in *":$HOME/.local/bin:"*) ;; *) export PATH="$HOME/.local/bin:$PATH" ;; esac
export PYTHONUNBUFFERED="${PYTHONUNBUFFERED-1}"
cd -- "$HOME"/orch_workdir || orch_fail 'the working directory is not here' 'orch launch again: it is copied before this'
set +euo pipefail
for orch_conda in "$HOME/miniconda3" "$HOME/miniforge3" "$HOME/anaconda3" /opt/conda; do
  # shellcheck disable=SC1091 # the file is conda's own, on the host
  if [ -r "$orch_conda/etc/profile.d/conda.sh" ]; then . "$orch_conda/etc/profile.d/conda.sh"; fi
done
unset -f orch_told_slices orch_wait_turn orch_sort_holders orch_fail orch_root orch_holders orch_owner_lives orch_clear orch_apt orch_find_python orch_make_venv
unset -v "${!orch_@}"
# ---- program of the task ----
python train.py --rank "$ORCH_RANK"
