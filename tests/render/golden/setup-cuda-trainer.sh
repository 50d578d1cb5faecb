#!/usr/bin/env bash
# Sets one host up. The same text on every host: what differs comes from the environment. Safe to run again.
# shellcheck disable=SC2317 # of the functions for claims not every script needs all
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@"
set -euo pipefail
umask 077

orch_fail() { # what failed, and what to do next
  printf 'setup: %s\n' "$1" >&2
  if [ -n "${2:-}" ]; then printf '  next: %s\n' "$2" >&2; fi
  exit 1
}
export ORCH_HOST_DIR="${ORCH_HOST_DIR:-$HOME/.orch/host}" # started without orch
# Claims: which process may do what only one may do. A claim is a file with a number in a folder, made by link(2), which is
# atomic on NFS as well: of the temporary file's links the second is the proof, as an answer may be lost (Linux man-pages,
# open(2), "O_EXCL", read November 2026). flock is not used below home: NFS may lack it, or keep a lock of a dead host.
# Its line is "MACHINE BOOT PID START": BOOT is the boot id with the number of the process ids' namespace, START field 22 of
# /proc/PID/stat. An empty file is a claim that was given back. The highest number counts, and a claim that no one holds any
# more is followed by the next number, so that of two processes that find it so only one gets it.
# In the folder of a rank, a claim of another boot is stale. Elsewhere it may be another host's, whose process ids mean
# nothing here: it is held as long as its time moves, and so is one that cannot be read. nfs(5), acregmax: times of files may
# be 60 s old. A time far ahead is not that of a holder either: the file server's clock was set back.
orch_find_boot() {
    orch_boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)/$(readlink /proc/self/ns/pid 2>/dev/null | tr -dc 0-9)
}
orch_runs() { # words of a claim: whether its process runs on this host
    [ "$2" = "$orch_boot" ] && { read -r orch_stat <"/proc/$3/stat"; } 2>/dev/null || return 1
    # shellcheck disable=SC2086 # fields, from the third on
    set -- "$4" ${orch_stat##*) }
    [ "$2" != Z ] && [ "$1" = "${21}" ]
}
orch_find_claim() { # folder; sets orch_number to the newest claim's, 0 for none, and orch_words to its line
    orch_number=0 orch_words=
    for orch_file in "$1"/[0-9]*; do
        orch_file=${orch_file##*/}
        case $orch_file in *[!0-9]* | 0* | ???????????????????*) continue ;; esac # no number that was counted up to
        [ "$orch_file" -le "$orch_number" ] || orch_number=$orch_file
    done
    [ "$orch_number" = 0 ] || { read -r orch_words <"$1/$orch_number"; } 2>/dev/null \
        || [ ! -s "$1/$orch_number" ] || orch_words='unread unread - -'
}
orch_is_held() { # folder: whether a process holds its newest claim
    [ -n "${orch_boot:-}" ] || orch_find_boot
    orch_find_claim "$1"
    # shellcheck disable=SC2086 # four words
    set -- "$1" $orch_words
    [ $# = 5 ] || return 1
    if [ "$3" = "$orch_boot" ]; then
        orch_runs "$2" "$3" "$4" "$5"
        return
    fi
    case $1 in "$ORCH_HOST_DIR"/*) return 1 ;; esac
    orch_file=$1/.now-${ORCH_HOST_DIR##*/}.$$
    rm -f -- "$orch_file" # of a process that was killed and had this number
    true >"$orch_file" || return 0 # without the file system's own time nothing is known
    # shellcheck disable=SC2046 # two numbers: seconds by the file system's clock
    set -- $(stat -c %Y -- "$orch_file" "$1/$orch_number" 2>/dev/null)
    rm -f -- "$orch_file"
    [ $# = 2 ] || return 1
    set -- "$(($1 - $2))"
    [ "${1#-}" -lt "${ORCH_CLAIM_SECONDS:-180}" ]
}
orch_take_claim() { # folder; sets orch_claim to the file, or fails when the claim is held
    mkdir -p -- "$1" || return 1
    ! orch_is_held "$1" || return 1
    orch_claim=$1/$((orch_number + 1))
    orch_file=$1/.new-${ORCH_HOST_DIR##*/}.$$
    read -r orch_stat <"/proc/$$/stat" || return 1
    # shellcheck disable=SC2086 # fields, from the third on
    set -- "$1" ${orch_stat##*) }
    rm -f -- "$orch_file" # of a process that was killed and had this number: it may be another link of its claim
    printf '%s\n' "${ORCH_HOST_DIR##*-} $orch_boot $$ ${21}" >"$orch_file" || return 1
    ln -- "$orch_file" "$orch_claim" 2>/dev/null || :
    orch_words=$(stat -c %h -- "$orch_file")
    rm -f -- "$orch_file"
    [ "$orch_words" = 2 ] || return 1
    orch_find_claim "$1"
    if [ "$orch_claim" != "$1/$orch_number" ]; then # it was an old number, which had been deleted
        rm -f -- "$orch_claim"
        return 1
    fi
    for orch_file in "$1"/[0-9]*; do # never a later one: this process may have slept here, and lost the claim
        [ "${orch_file##*/}" -ge "$orch_number" ] || rm -f -- "$orch_file"
    done 2>/dev/null
}
orch_await_claim() { # folder, tenths of a second; fails after that time
    orch_tries=$2
    until orch_take_claim "$1"; do
        [ "$orch_tries" -gt 0 ] || return 1
        orch_tries=$((orch_tries - 1))
        sleep 0.1
    done
}
orch_give_claim() { true >"$orch_claim"; }
# What the ranks of one home share is written by one of them; the others wait, and find it complete.
orch_share() { # folder of the claim, what is written; waits until no one else writes it
    orch_waited=0
    until orch_take_claim "$1"; do
        [ "$orch_waited" -lt 7200 ] || orch_fail "$2 is still being written by another host after an hour" "on a host: ls -l $1"
        [ "$((orch_waited % 60))" != 2 ] || printf 'waiting: another host that has this home folder writes %s\n' "$2"
        orch_waited=$((orch_waited + 1))
        sleep 0.5
    done
    # Its time moves while this process lives: that is all that other hosts can see of it.
    # shellcheck disable=SC2154 # set by orch_take_claim
    # shellcheck disable=SC2046 # four words; not `kill -0`, as another process may get this one's number
    (while sleep 10 && orch_runs $(cat -- "$orch_claim"); do touch -c -- "$orch_claim"; done) </dev/null >/dev/null 2>&1 &
    orch_beat=$!
}
orch_unshare() {
    kill "$orch_beat" 2>/dev/null || :
    orch_give_claim
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

  # Hosts that have one home folder have one environment.
  (umask 077 && mkdir -p -- "$HOME/.orch/claims")
  orch_share "$HOME/.orch/claims/venv" "$orch_venv"
  trap orch_unshare EXIT
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
  trap - EXIT
  orch_unshare
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
  (umask 077 && mkdir -p -- "$HOME/.orch/claims")
  orch_share "$HOME/.orch/claims/site" "$site"
  trap orch_unshare EXIT
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
  trap - EXIT
  orch_unshare
}
if [ -n "$orch_image" ]; then orch_beside; else rm -rf -- "$HOME/.orch/site"; fi

# The bundled trainer was copied to the folder of this rank. Does it work here, on this device?
# Nothing is imported from the working folder, as in the run script (Python 3.11, "-P" and
# "PYTHONSAFEPATH"). An empty or relative entry of PYTHONPATH would mean that folder.
orch_listed=$(printf '%s' "${PYTHONPATH:-}" | tr ':' '\n' | { grep '^/' || true; } | paste -s -d : -)
orch_path="$ORCH_HOST_DIR/trainer:$HOME/.orch/site${orch_listed:+:$orch_listed}"
[ -f "$ORCH_HOST_DIR/trainer/trainer/__main__.py" ] || orch_fail "the trainer is missing in $ORCH_HOST_DIR/trainer" 'orch launch again: it is copied before setup'
orch_missing=$(PYTHONSAFEPATH=1 PYTHONPATH=$orch_path "$ORCH_PYTHON" -c '
import importlib.util, sys
print(*[name for name in sys.argv[1:] if importlib.util.find_spec(name) is None])
' torch numpy obstore) || orch_fail "$ORCH_PYTHON does not run"
[ -z "$orch_missing" ] || orch_fail "$ORCH_PYTHON misses: $orch_missing" "$ORCH_PYTHON -m pip install $orch_missing"
set -- check
# Each host by itself: another may have passed setup before.
[ $# -eq 0 ] || ORCH_RANK=0 ORCH_NUM_HOSTS=1 PYTHONSAFEPATH=1 PYTHONPATH=$orch_path "$ORCH_PYTHON" -m trainer "$@" engine=torch device=cuda
