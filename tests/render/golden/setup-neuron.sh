#!/usr/bin/env bash
# Sets one host up. The same text on every host: what differs comes from the environment. Safe to run again.
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@"
set -euo pipefail

orch_fail() { # what failed, and what to do next
  printf 'setup: %s\n' "$1" >&2
  if [ -n "${2:-}" ]; then printf '  next: %s\n' "$2" >&2; fi
  exit 1
}

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
