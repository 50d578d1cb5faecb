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

orch_wait_turn() { # many hosts are not let loose on the package index in one second: 0 to 20 s, by rank
  if [ "${ORCH_NUM_HOSTS:-1}" -gt 8 ]; then sleep "$((${ORCH_RANK:-0} * 13 % 21))"; fi
}
# Python: an environment of our own, unless ORCH_PYTHON names an interpreter.
if [ -z "${ORCH_PYTHON:-}" ]; then
  orch_packages=( 'jax[tpu]==0.10.2' )
  orch_venv=$HOME/.orch/venv
  ORCH_PYTHON=$orch_venv/bin/python

  orch_find_python() { # prints the first interpreter of a version that all our packages have wheels for
    local candidate
    for candidate in python3 python3.12 python3.11 python3.13; do
      if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
        printf '%s\n' "$candidate"
        return 0
      fi
    done
    return 1
  }

  orch_make_venv() {
    local base version
    base=$(orch_find_python) \
      || orch_fail 'no Python 3.11, 3.12 or 3.13 here' \
        'sudo apt-get install python3.11 python3.11-venv, or set ORCH_PYTHON in envs to an interpreter'
    version=$("$base" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
    "$base" -c 'import ensurepip, venv' 2>/dev/null \
      || orch_fail "$version has no ensurepip: it cannot make an environment" "sudo apt-get install $version-venv"
    mkdir -p -- "$HOME/.orch"
    "$base" -m venv --clear "$orch_venv" || orch_fail "$base could not make an environment in $orch_venv"
  }

  # What the environment holds. It is not there while pip works, so a host that dies then begins anew.
  orch_holds=$orch_venv/.orch-packages

  orch_dropped() { # true when something is in it that is not asked for now: torch_tpu, say, breaks the torch of torch_xla
    local line names=" ${orch_packages[*]%%[!A-Za-z0-9._-]*} "
    while IFS= read -r line; do
      case $names in *" ${line%%[!A-Za-z0-9._-]*} "*) ;; *) return 0 ;; esac
    done <"$orch_holds"
    return 1
  }

  if ! "$ORCH_PYTHON" -c '' 2>/dev/null \
    || [ "$(cat -- "$orch_holds" 2>/dev/null)" != "$(printf '%s\n' "${orch_packages[@]}")" ]; then
    printf 'setup: installing %s\n' "${orch_packages[*]}"
    orch_wait_turn
    if ! "$ORCH_PYTHON" -c '' 2>/dev/null || [ ! -e "$orch_holds" ] || orch_dropped; then orch_make_venv; fi
    orch_held=$(cat -- "$orch_holds" 2>/dev/null) || true
    rm -f -- "$orch_holds"
    if ! "$ORCH_PYTHON" -m pip install --no-input --disable-pip-version-check --progress-bar off --quiet \
      -- "${orch_packages[@]}"; then
      # pip undoes what fails. With any package twice it is never taken for finished.
      printf '%s\n' ${orch_held:+"$orch_held"} "${orch_packages[@]}" "${orch_packages[@]}" >"$orch_holds"
      orch_fail 'the packages could not be installed' 'read the lines above; PIP_INDEX_URL in envs names another index'
    fi
    printf '%s\n' "${orch_packages[@]}" >"$orch_holds"
  fi
fi
export ORCH_PYTHON

umask "$orch_umask"
# From here on it is an ordinary bash script: our names and options are gone, the last command's status counts.
export PATH="$HOME/.orch/venv/bin:$PATH"
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
