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

# AWS's PyTorch images bring theirs in /opt/pytorch, made for their driver and EFA (AWS Deep Learning AMI guide, 2026): it is
# used as it is, when it is new enough, and what it lacks goes beside it.
orch_image=${ORCH_VENVS_DIR:-/opt}/pytorch/bin/python
if [ -z "${ORCH_PYTHON:-}" ] && "$orch_image" -c '
import sys
from importlib.metadata import version
sys.exit(tuple(map(int, version("torch").split(".")[:2])) < (2, 9))
' 2>/dev/null; then
  printf 'setup: torch of the image, %s\n' "$orch_image"
  ORCH_PYTHON=$orch_image
else
  orch_image=''
fi
orch_wait_turn() { # many hosts are not let loose on the package index in one second: 0 to 20 s, by rank
  if [ "${ORCH_NUM_HOSTS:-1}" -gt 8 ]; then sleep "$((${ORCH_RANK:-0} * 13 % 21))"; fi
}
# Python: our own environment, unless ORCH_PYTHON names an interpreter.
if [ -z "${ORCH_PYTHON:-}" ]; then
  orch_packages=( torch==2.13.0 'numpy>=2.0,<3' obstore==0.12.1 tokenizers==0.23.3 torchao==0.18.0 )
  orch_locked=( # the trainer's, with everything that they need, by digest
  )
  [ -z "${ORCH_UNLOCKED_PACKAGES:-}" ] || orch_locked=()
  orch_venv=$HOME/.orch/venv
  ORCH_PYTHON=$orch_venv/bin/python

  orch_find_python() { # prints the first finished release of a version that all our packages have wheels for
    local candidate
    for candidate in python3 python3.12 python3.11 python3.13; do
      # Ubuntu 22.04 has a candidate of 3.11.0, with which torch crashes (Launchpad, package python3.11, jammy-updates).
      if "$candidate" -c '
import ensurepip, sys, venv
v = sys.version_info
sys.exit(not (3, 11) <= v[:2] <= (3, 13) or v.releaselevel != "final")' 2>/dev/null; then
        printf '%s\n' "$candidate"
        return 0
      fi
    done
    return 1
  }

  orch_make_venv() {
    local base
    if ! base=$(orch_find_python); then
      orch_fail 'no finished Python 3.11, 3.12 or 3.13 with its module venv is here' \
        'sudo apt-get install python3-venv, or set ORCH_PYTHON in envs to an interpreter'
    fi
    mkdir -p -- "$HOME/.orch"
    "$base" -m venv --clear "$orch_venv" || orch_fail "$base could not make an environment in $orch_venv"
  }

  # What the environment holds. It is not there while pip works, so a host that dies then begins again.
  orch_holds=$orch_venv/.orch-packages

  orch_dropped() { # true when it has packages that are not requested now: torch_tpu, for example, breaks the torch of torch_xla
    # Also when nothing in it was installed by digest: pip would leave that as it is.
    local line names=" ${orch_locked[*]%%[!A-Za-z0-9._-]*} ${orch_packages[*]%%[!A-Za-z0-9._-]*} "
    while IFS= read -r line; do
      case $names in *" ${line%%[!A-Za-z0-9._-]*} "*) ;; *) return 0 ;; esac
    done <"$orch_holds"
    return 1
  }

  orch_install() {
    local pip=("$ORCH_PYTHON" -m pip install --no-input --disable-pip-version-check --progress-bar off --quiet)
    if [ -n "${orch_locked[*]}" ]; then
      "${pip[@]}" --require-hashes --only-binary :all: -r <(printf '%s\n' "${orch_locked[@]}") || return
      return 0
    fi
    "${pip[@]}" -- "${orch_packages[@]}" # of the trainer's, what is there keeps its version
  }

  if ! "$ORCH_PYTHON" -c '' 2>/dev/null \
    || [ "$(cat -- "$orch_holds" 2>/dev/null)" != "$(printf '%s\n' "${orch_locked[@]}" "${orch_packages[@]}")" ]; then
    printf 'setup: installing %s\n' "${orch_packages[*]}"
    orch_wait_turn
    if ! "$ORCH_PYTHON" -c '' 2>/dev/null || [ ! -e "$orch_holds" ] || orch_dropped; then orch_make_venv; fi
    orch_held=$(cat -- "$orch_holds" 2>/dev/null) || true
    rm -f -- "$orch_holds"
    # One host of many meets a mirror that fails for a moment, and would end the launch of all.
    if ! orch_install && { printf 'setup: pip failed, and is tried once more\n' >&2; sleep 5; ! orch_install; }; then
      # pip undoes what fails. With any package twice it is never taken for finished.
      printf '%s\n' ${orch_held:+"$orch_held"} "${orch_locked[@]}" "${orch_packages[@]}" "${orch_packages[@]}" >"$orch_holds"
      orch_fail 'the packages could not be installed' \
        'read the lines above; PIP_INDEX_URL in envs names another index, whose files must be the same: docs/security.md'
    fi
    printf '%s\n' "${orch_locked[@]}" "${orch_packages[@]}" >"$orch_holds"
  fi
fi
export ORCH_PYTHON

orch_beside() { # installs packages that an image does not have, beside its environment, which stays unchanged
  local packages locked site=$HOME/.orch/site
  local pip=("$ORCH_PYTHON" -m pip install --no-input --disable-pip-version-check --progress-bar off --quiet --target "$site")
  local -a failed=('the packages could not be installed'
    'read the lines above; PIP_INDEX_URL in envs names another index, whose files must be the same: docs/security.md')
  packages=( obstore==0.12.1 tokenizers==0.23.3 )
  locked=( # with everything that they need, by digest
  )
  [ -z "${ORCH_UNLOCKED_PACKAGES:-}" ] || locked=()
  if [ "$(cat -- "$site/.orch-packages" 2>/dev/null)" != "$(printf '%s\n' "$ORCH_PYTHON" "${locked[@]}" "${packages[@]}")" ]; then
    printf 'setup: installing %s\n' "${packages[*]}"
    orch_wait_turn
    rm -rf -- "$site"
    if [ -n "${locked[*]}" ]; then
      "${pip[@]}" --require-hashes --only-binary :all: -r <(printf '%s\n' "${locked[@]}") || orch_fail "${failed[@]}"
    else
      "${pip[@]}" -- "${packages[@]}" || orch_fail "${failed[@]}"
    fi
    printf '%s\n' "$ORCH_PYTHON" "${locked[@]}" "${packages[@]}" >"$site/.orch-packages"
  fi
}
if [ -n "$orch_image" ]; then orch_beside; else rm -rf -- "$HOME/.orch/site"; fi

# The bundled trainer was copied to ~/.orch/trainer. Does it work here, on this device?
# Nothing is imported from the working folder, as in the run script (Python 3.11, "-P" and
# "PYTHONSAFEPATH"). An empty or relative entry of PYTHONPATH would mean that folder.
orch_listed=$(printf '%s' "${PYTHONPATH:-}" | tr ':' '\n' | { grep '^/' || true; } | paste -s -d : -)
orch_path="$HOME/.orch/trainer:$HOME/.orch/site${orch_listed:+:$orch_listed}"
[ -f "$HOME/.orch/trainer/trainer/__main__.py" ] || orch_fail 'the trainer is missing in ~/.orch/trainer' 'orch launch again: it is copied before setup'
orch_missing=$(PYTHONSAFEPATH=1 PYTHONPATH=$orch_path "$ORCH_PYTHON" -c '
import importlib.util, sys
print(*[name for name in sys.argv[1:] if importlib.util.find_spec(name) is None])
' torch numpy obstore) || orch_fail "$ORCH_PYTHON does not run"
[ -z "$orch_missing" ] || orch_fail "$ORCH_PYTHON misses: $orch_missing" "$ORCH_PYTHON -m pip install $orch_missing"
set -- check
# Each host by itself: another may have passed setup before.
[ $# -eq 0 ] || ORCH_RANK=0 ORCH_NUM_HOSTS=1 PYTHONSAFEPATH=1 PYTHONPATH=$orch_path "$ORCH_PYTHON" -m trainer "$@" engine=torch device=cuda
