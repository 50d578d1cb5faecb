#!/usr/bin/env bash
# Sets one host up. The same text on every host: what differs comes from the environment. Safe to run again.
# shellcheck disable=SC2317 # of the functions for claims not every script needs all
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@"
set -euo pipefail
orch_umask=$(umask)
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
  (umask 077 && mkdir -p -- "$HOME/.orch/claims")
  orch_share "$HOME/.orch/claims/site" "$site"
  trap orch_unshare EXIT
  if [ "$(cat -- "$site/.orch-packages" 2>/dev/null)" != "$(printf '%s\n' "$ORCH_PYTHON" "${locked[@]}" "${packages[@]}")" ]; then
    printf 'setup: installing %s\n' "${packages[*]}"
    orch_wait_turn
    rm -rf -- "$site"
    "${pip[@]}" -- "${packages[@]}" || orch_fail "${failed[@]}"
    printf '%s\n' "$ORCH_PYTHON" "${locked[@]}" "${packages[@]}" >"$site/.orch-packages"
  fi
  trap - EXIT
  orch_unshare
}
orch_beside

umask "$orch_umask"
# From here on it is an ordinary bash script: our names and options are unset, the last command's status counts.
# On the user's own computer: the environment of the shell that launched.
[ -z "${ORCH_LAUNCH_BIN:-}" ] || export PATH="$ORCH_LAUNCH_BIN:$PATH"
export PYTHONPATH="$HOME/.orch/site${PYTHONPATH:+:$PYTHONPATH}"
case ":$PATH:" in *":$HOME/.local/bin:"*) ;; *) export PATH="$HOME/.local/bin:$PATH" ;; esac
export PYTHONUNBUFFERED="${PYTHONUNBUFFERED-1}"
cd -- "$HOME"
export ORCH_WORKDIR="$PWD"
# The newest working directory by its usual names: ours, and the dialect's. What the program made itself stays.
[ -e "$HOME/sky_workdir" ] || ln -sfn -- . "$HOME/sky_workdir" || true
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
