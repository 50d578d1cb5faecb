#!/usr/bin/env bash
# Copies a bucket path to this host's own disk. Safe to run again: what is here already is not sent twice.
# shellcheck disable=SC2317 # of the functions for claims not every script needs all
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@"
set -euo pipefail

orch_fail() { # what failed, and what to do next
  printf 'copy: %s\n' "$1" >&2
  if [ -n "${2:-}" ]; then printf '  next: %s\n' "$2" >&2; fi
  exit 1
}
orch_source='file:///data/my books'
# Sets ORCH_HOST_DIR, the folder of one rank on one machine, which every script of orch begins with: several hosts may have one
# home folder (NFS). ORCH_HOST_NAME, which orch exports, names cluster, generation and rank. The machine's id must not be shown
# (machine-id(5), systemd, read November 2026), so its hash is used.
case ${ORCH_HOST_DIR:-} in
*/"${ORCH_HOST_NAME:=host}"-*) ;;
*)
    orch_machine=
    { read -r orch_machine </etc/machine-id; } 2>/dev/null || :
    orch_machine=$(printf 'orch %s' "${orch_machine:-$(uname -n)}" | sha256sum)
    ORCH_HOST_DIR=$HOME/.orch/hosts/$ORCH_HOST_NAME-${orch_machine%"${orch_machine#????????}"}
    export ORCH_HOST_DIR
    ;;
esac
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
orch_target="$HOME"/data

orch_folder() { # makes a folder, with the rights of root where ours do not do; never takes over one that exists
  if mkdir -p -- "$1" 2>/dev/null; then
    [ -w "$1" ] || orch_fail "the folder $1 is not ours to write in" 'choose a destination below ~'
  elif ! sudo -n mkdir -p -- "$1" 2>/dev/null || ! sudo -n chown -- "$(id -u):$(id -g)" "$1"; then
    orch_fail "cannot make the folder $1" 'choose a destination below ~'
  fi
}
orch_receive() { # makes a folder; hosts that share it (those of one computer, or of a network disk) copy to it one after the other
  local beside
  orch_folder "$1"
  beside=$(dirname -- "$1"; printf .)
  beside=${beside%??}/.orch-copy-$(printf %s "$1" | sha256sum | cut -c 1-16)
  if mkdir -p -- "$beside" 2>/dev/null; then
    orch_share "$beside" "$orch_target"
    trap 'orch_unshare; rm -rf -- "${orch_claim%/*}"' EXIT
  fi
}
orch_parent() { # makes the folder that the file goes to
  local parent
  parent=$(dirname -- "$orch_target"; printf .)
  orch_receive "${parent%??}"
}

orch_path='/data/my books'
if [ -d "$orch_path" ]; then
  orch_receive "$orch_target"
  cp -a -- "$orch_path/." "$orch_target/"
elif [ -e "$orch_path" ]; then
  orch_parent
  cp -a -- "$orch_path" "$orch_target"
else
  orch_fail "there is nothing at $orch_source" "ls -la $orch_source"
fi
