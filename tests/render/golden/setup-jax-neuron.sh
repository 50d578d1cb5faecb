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

# Fast local disks, when they are there; see templates/mount/scratch.sh.j2.
if [ -z "${ORCH_SCRATCH+set}" ] && mountpoint -q -- /opt/dlami/nvme && [ -w /opt/dlami/nvme ]; then
  export ORCH_SCRATCH=/opt/dlami/nvme
fi

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
orch_beside() { # installs packages that an image does not have, beside its environment, which stays unchanged
  local packages locked site=$HOME/.orch/site
  local pip=("$ORCH_PYTHON" -m pip install --no-input --disable-pip-version-check --progress-bar off --quiet --target "$site")
  local -a failed=('the packages could not be installed'
    'read the lines above; PIP_INDEX_URL in envs names another index, whose files must be the same: docs/security.md')
  packages=( flax )
  locked=( # with everything that they need, by digest
  )
  if [ "$(cat -- "$site/.orch-packages" 2>/dev/null)" != "$(printf '%s\n' "$ORCH_PYTHON" "${locked[@]}" "${packages[@]}")" ]; then
    printf 'setup: installing %s\n' "${packages[*]}"
    orch_wait_turn
    rm -rf -- "$site"
    "${pip[@]}" -- "${packages[@]}" || orch_fail "${failed[@]}"
    printf '%s\n' "$ORCH_PYTHON" "${locked[@]}" "${packages[@]}" >"$site/.orch-packages"
  fi
}
orch_beside

umask "$orch_umask"
# From here on it is an ordinary bash script: our names and options are unset, the last command's status counts.
export PYTHONPATH="$HOME/.orch/site${PYTHONPATH:+:$PYTHONPATH}"
case ":$PATH:" in *":$HOME/.local/bin:"*) ;; *) export PATH="$HOME/.local/bin:$PATH" ;; esac
export PYTHONUNBUFFERED="${PYTHONUNBUFFERED-1}"
cd -- "$HOME"
# The dialect's name of this folder. One that the program made itself stays.
[ -e "$HOME/sky_workdir" ] || ln -s -- . "$HOME/sky_workdir" || true
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
# ---- setup of the task ----
pip install -r requirements.txt
