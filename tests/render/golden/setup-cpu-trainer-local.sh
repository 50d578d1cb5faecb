#!/usr/bin/env bash
# Sets one host up. The same text on every host: what differs comes from the environment. Safe to run again.
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@"
set -euo pipefail
orch_umask=$(umask)
umask 077

orch_fail() { # what failed, and what to do next
  printf 'setup: %s\n' "$1" >&2
  if [ -n "${2:-}" ]; then printf '  next: %s\n' "$2" >&2; fi
  exit 1
}

[ -n "${ORCH_PYTHON:-}" ] || ORCH_PYTHON=/usr/bin/python3.11
export ORCH_PYTHON

# The bundled trainer was copied to ~/.orch/trainer. Does it work here, on this device?
orch_path="$HOME/.orch/trainer${PYTHONPATH:+:$PYTHONPATH}"
[ -f "$HOME/.orch/trainer/trainer/__main__.py" ] || orch_fail 'the trainer is missing in ~/.orch/trainer' 'orch launch again: it is copied before setup'
orch_missing=$(PYTHONPATH=$orch_path "$ORCH_PYTHON" -c '
import importlib.util, sys
print(*[name for name in sys.argv[1:] if importlib.util.find_spec(name) is None])
' torch numpy safetensors obstore) || orch_fail "$ORCH_PYTHON does not run"
[ -z "$orch_missing" ] || orch_fail "$ORCH_PYTHON lacks: $orch_missing" "$ORCH_PYTHON -m pip install $orch_missing"
set -- check
# Each host by itself: another may have passed setup before.
[ $# -eq 0 ] || ORCH_RANK=0 ORCH_NUM_HOSTS=1 PYTHONPATH=$orch_path "$ORCH_PYTHON" -m trainer "$@" engine=torch device=cpu

umask "$orch_umask"
# From here on it is an ordinary bash script: our names and options are gone, the last command's status counts.
case ":$PATH:" in *":$HOME/.local/bin:"*) ;; *) export PATH="$HOME/.local/bin:$PATH" ;; esac
export PYTHONUNBUFFERED="${PYTHONUNBUFFERED-1}"
cd -- "$HOME"
set +euo pipefail
for orch_conda in "$HOME/miniconda3" "$HOME/miniforge3" "$HOME/anaconda3" /opt/conda; do
  # shellcheck disable=SC1091 # the file is conda's own, on the host
  if [ -r "$orch_conda/etc/profile.d/conda.sh" ]; then . "$orch_conda/etc/profile.d/conda.sh"; fi
done
unset -f orch_expect orch_devices orch_told_slices orch_wait_turn orch_sort_holders orch_fail orch_root orch_holders orch_owner_lives orch_clear orch_apt orch_find_python orch_make_venv orch_dropped orch_beside
unset -v "${!orch_@}"
# ---- setup of the task ----
pip install -r requirements.txt
