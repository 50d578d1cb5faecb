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

# A name that is set already, by `envs` or by the image, is left alone, here and below.
orch_head=${ORCH_COORDINATOR%:*}
orch_head=${orch_head#\[}
orch_head=${orch_head%\]}
export MASTER_ADDR="${MASTER_ADDR-$orch_head}" MASTER_PORT="${MASTER_PORT-${ORCH_COORDINATOR##*:}}"

# torch_xla takes its place in the slice from the TPU VM's own metadata; it only has to be told to use the TPU.
export PJRT_DEVICE="${PJRT_DEVICE-TPU}"

# From here on it is an ordinary bash script: our names and options are gone, the last command's status counts.
case ":$PATH:" in *":$HOME/.local/bin:"*) ;; *) export PATH="$HOME/.local/bin:$PATH" ;; esac
export PYTHONUNBUFFERED="${PYTHONUNBUFFERED-1}"
cd -- "$HOME"
set +euo pipefail
for orch_conda in "$HOME/miniconda3" "$HOME/miniforge3" "$HOME/anaconda3" /opt/conda; do
  # shellcheck disable=SC1091 # the file is conda's own, on the host
  if [ -r "$orch_conda/etc/profile.d/conda.sh" ]; then . "$orch_conda/etc/profile.d/conda.sh"; fi
done
unset -f orch_wait_turn orch_sort_holders orch_fail orch_root orch_holders orch_owner_lives orch_clear orch_apt orch_find_python orch_make_venv
unset -v "${!orch_@}"
# ---- program of the task ----
python train.py --rank "$ORCH_RANK"
