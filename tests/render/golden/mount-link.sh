#!/usr/bin/env bash
# Gives a host of a rehearsal the folder that stands for a mounted bucket: all hosts see what one of them writes.
# Safe to run again.
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@"
set -euo pipefail

orch_fail() { # what failed, and what to do next
  printf 'mount: %s\n' "$1" >&2
  if [ -n "${2:-}" ]; then printf '  next: %s\n' "$2" >&2; fi
  exit 1
}
orch_path='/data/my books'
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
orch_target="$HOME"/'my books'

[ -d "$orch_path" ] || orch_fail "there is no folder $orch_path" 'a bucket is mounted as a folder: name one'
if [ -d "$orch_target" ] && [ ! -L "$orch_target" ]; then
  rmdir -- "$orch_target" 2>/dev/null \
    || orch_fail "$orch_target holds files, which a mount would hide" 'choose another target'
fi
orch_parent=$(dirname -- "$orch_target"; printf .)
mkdir -p -- "${orch_parent%??}"
ln -sfnT -- "$orch_path" "$orch_target"
