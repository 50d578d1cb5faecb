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
# For launchers: Lightning reads NODE_RANK; `torchrun --nproc-per-node N train.py` reads PET_* as the defaults of its
# options (torch 2.13, torch/distributed/argparse_util.py), so it needs no others on several hosts.
export NODE_RANK="${NODE_RANK-$ORCH_RANK}"
if [ "$ORCH_NUM_HOSTS" -gt 1 ]; then
  export PET_NNODES="${PET_NNODES-$ORCH_NUM_HOSTS}" PET_NODE_RANK="${PET_NODE_RANK-$ORCH_RANK}"
  export PET_MASTER_ADDR="${PET_MASTER_ADDR-$MASTER_ADDR}" PET_MASTER_PORT="${PET_MASTER_PORT-$MASTER_PORT}"
fi

# Threads of one process: the cores of the machine, shared with the other hosts that are on it.
if [ -z "${OMP_NUM_THREADS+set}" ]; then
  orch_cores=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
  orch_cores=$((orch_cores / ${ORCH_LOCAL_RANKS_PER_MACHINE:-1}))
  export OMP_NUM_THREADS="$((orch_cores > 0 ? orch_cores : 1))"
fi

# From here on it is an ordinary bash script: our names and options are unset, the last command's status counts.
# On the user's own computer: the environment of the shell that launched.
[ -z "${ORCH_LAUNCH_BIN:-}" ] || export PATH="$ORCH_LAUNCH_BIN:$PATH"
case ":$PATH:" in *":$HOME/.local/bin:"*) ;; *) export PATH="$HOME/.local/bin:$PATH" ;; esac
export PYTHONUNBUFFERED="${PYTHONUNBUFFERED-1}"
cd -- "$ORCH_HOST_DIR/workdir" || orch_fail 'the working directory is not here' 'orch launch again: it is copied before this'
export ORCH_WORKDIR="$PWD"
# The newest working directory by its usual names: ours, and the dialect's. What the program made itself stays.
for orch_link in orch_workdir sky_workdir; do
  [ -e "$HOME/$orch_link" ] && [ ! -L "$HOME/$orch_link" ] || ln -sfn -- "$PWD" "$HOME/$orch_link" || true
done
set +euo pipefail
# Exports that setup appended to ~/.bashrc hold in run, as in the dialect, which runs both with `bash -i` and sources that
# file (SkyPilot, sky/skylet/log_lib.py, make_task_bash_script, read November 2026). Ubuntu's file returns early in a shell
# that is not interactive, and an interactive one ignores TERM. So another shell reads it, without a terminal to wait on.
if [ -r "$HOME/.bashrc" ]; then
  # shellcheck disable=SC2016 # the other shell expands it
  orch_login=$(timeout -s KILL 60 setsid bash --norc -i -c 'exec 3>&1 >/dev/null 2>&1
    . "$HOME/.bashrc" 3>&-
    unset -v PWD OLDPWD SHLVL _ "${!ORCH_@}" "${!SKYPILOT_@}" "$@"
    export -p >&3' orch </dev/null 2>/dev/null) \
    || printf 'warning: %s\n' 'an error in ~/.bashrc: its exports are missing here' >&2
  eval "$orch_login"
fi
for orch_conda in "$HOME/miniconda3" "$HOME/miniforge3" "$HOME/anaconda3" /opt/conda; do
  # shellcheck disable=SC1091 # the file is conda's own, on the host
  if [ -r "$orch_conda/etc/profile.d/conda.sh" ]; then . "$orch_conda/etc/profile.d/conda.sh"; fi
  # As on machines of the dialect, the base environment is active where orch has installed conda.
  if [ -e "$orch_conda/.orch-complete" ]; then conda activate base; fi
done
# shellcheck disable=SC2046 # names of functions: no blanks
unset -f $(compgen -A function orch_)
unset -v "${!orch_@}"
# ---- program of the task ----
python train.py --rank "$ORCH_RANK"
