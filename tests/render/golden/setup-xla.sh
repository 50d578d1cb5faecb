#!/usr/bin/env bash
# Sets one host up. The same text on every host: what differs comes from the environment. Safe to run again.
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@"
set -euo pipefail

orch_fail() { # what failed, and what to do next
  printf 'setup: %s\n' "$1" >&2
  if [ -n "${2:-}" ]; then printf '  next: %s\n' "$2" >&2; fi
  exit 1
}

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
# ---- setup of the task ----
pip install -r requirements.txt
