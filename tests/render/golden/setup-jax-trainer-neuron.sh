#!/usr/bin/env bash
# Sets one host up. The same text on every host: what differs comes from the environment. Safe to run again.
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@"
set -euo pipefail
umask 077

orch_fail() { # what failed, and what to do next
  printf 'setup: %s\n' "$1" >&2
  if [ -n "${2:-}" ]; then printf '  next: %s\n' "$2" >&2; fi
  exit 1
}

# Python: the environment that AWS put into the image, unless ORCH_PYTHON names another. JAX is in
# /opt/aws_neuronx_venv_jax_*; PyTorch in /opt/aws_neuronx_venv_torch_neuronx_* of Neuron 2.33 and later (Trn2, Trn3), up to
# 2.31 in /opt/aws_neuronx_venv_pytorch_* (also Trn1). Sources: AWS Neuron documentation, "Neuron DLAMI User Guide" (2.28
# to 2.32) and "Update PyTorch on a Deep Learning AMI" (2.33.0, October 2026).
for orch_name in 'jax_[0-9]*' jax; do
  [ -z "${ORCH_PYTHON:-}" ] || break
  ORCH_PYTHON=$(compgen -G "${ORCH_VENVS_DIR:-/opt}/aws_neuronx_venv_$orch_name/bin/python" | sort -V | tail -n 1) || true
done
# The compiler is found by name, and it is in there too.
case ${ORCH_PYTHON:-} in /*) export PATH="${ORCH_PYTHON%/*}:/opt/aws/neuron/bin:$PATH" ;; esac
[ -n "${ORCH_PYTHON:-}" ] || orch_fail 'this image has no JAX for Neuron' \
  'take an image of Neuron JAX, or set ORCH_PYTHON in envs'
export ORCH_PYTHON

orch_wait_turn() { # many hosts are not let loose on the package index in one second: 0 to 20 s, by rank
  if [ "${ORCH_NUM_HOSTS:-1}" -gt 8 ]; then sleep "$((${ORCH_RANK:-0} * 13 % 21))"; fi
}
# Only names that are real on the public index: the Neuron packages there are empty placeholders (seen November 2026) and
# must come with the image.
orch_beside() { # installs what an image lacks, beside its own environment, which stays as it is
  local packages site=$HOME/.orch/site
  packages=( safetensors==0.8.0 obstore==0.12.1 tokenizers==0.23.3 )
  if [ "$(cat -- "$site/.orch-packages" 2>/dev/null)" != "$(printf '%s\n' "$ORCH_PYTHON" "${packages[@]}")" ]; then
    printf 'setup: installing %s\n' "${packages[*]}"
    orch_wait_turn
    rm -rf -- "$site"
    "$ORCH_PYTHON" -m pip install --no-input --disable-pip-version-check --progress-bar off --quiet \
      --target "$site" -- "${packages[@]}" \
      || orch_fail 'the packages could not be installed' 'read the lines above; PIP_INDEX_URL in envs names another index'
    printf '%s\n' "$ORCH_PYTHON" "${packages[@]}" >"$site/.orch-packages"
  fi
}
orch_beside

# The bundled trainer was copied to ~/.orch/trainer. Does it work here, on this device?
orch_path="$HOME/.orch/trainer:$HOME/.orch/site${PYTHONPATH:+:$PYTHONPATH}"
[ -f "$HOME/.orch/trainer/trainer/__main__.py" ] || orch_fail 'the trainer is missing in ~/.orch/trainer' 'orch launch again: it is copied before setup'
orch_missing=$(PYTHONPATH=$orch_path "$ORCH_PYTHON" -c '
import importlib.util, sys
print(*[name for name in sys.argv[1:] if importlib.util.find_spec(name) is None])
' jax numpy safetensors obstore) || orch_fail "$ORCH_PYTHON does not run"
[ -z "$orch_missing" ] || orch_fail "$ORCH_PYTHON lacks: $orch_missing" "$ORCH_PYTHON -m pip install $orch_missing"
set -- check
# Each host by itself: another may have passed setup before.
[ $# -eq 0 ] || ORCH_RANK=0 ORCH_NUM_HOSTS=1 PYTHONPATH=$orch_path "$ORCH_PYTHON" -m trainer "$@" engine=jax device=neuron
