#!/usr/bin/env bash
# Makes the local NVMe disks of an EC2 instance one folder. Safe to run again, and after a reboot; after a stop the disks
# come back empty. Only disks that call themselves instance storage, and that hold nothing at all, are ever written to.
# shellcheck disable=SC2317 # of the functions for claims not every script needs all
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@"
set -euo pipefail

orch_fail() { # what failed, and what to do next
  printf 'scratch: %s\n' "$1" >&2
  if [ -n "${2:-}" ]; then printf '  next: %s\n' "$2" >&2; fi
  exit 1
}
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
orch_root() { # with the rights of root where we may have them, else with our own
  if [ "$(id -u)" -ne 0 ] && sudo -n true 2>/dev/null; then sudo -n "$@"; else "$@"; fi
}
orch_inputs() {
  orch_disk=/opt/dlami/nvme
  orch_label=orch-scratch
}
orch_try() { # one step, whose failure ends this
  orch_root "$@" </dev/null >/dev/null || orch_fail "this failed: $*" "on the host: sudo $*"
}
orch_empty() { # true for a disk without partitions, holders, mounts, and any signature, whatever the kernel's cache says
  local found
  found=$(lsblk --noheadings --raw --output NAME,FSTYPE,PTTYPE,MOUNTPOINT -- "$1" 2>/dev/null) || return 1
  [ "$(printf '%s' "$found" | awk '{ print NF }')" = 1 ] || return 1 # a second line is a partition or what is built on it
  found=$(orch_root wipefs --no-act -- "$1" 2>/dev/null) || return 1
  [ -z "$found" ]
}
orch_disks() { # empty instance store disks; the name of the model: EC2 documentation, "SSD instance store volumes"
  local name model
  lsblk --nodeps --noheadings --paths --output NAME,MODEL 2>/dev/null | while read -r name model; do
    case $model in 'Amazon EC2 NVMe Instance Storage'*) if orch_empty "$name"; then printf '%s\n' "$name"; fi ;; esac
  done
}
orch_usable() { # true when something is mounted there; all users may write, as in /tmp
  mountpoint -q -- "$orch_disk" || return 1
  [ -w "$orch_disk" ] || orch_try chmod 1777 -- "$orch_disk"
}
orch_made() { # the device that carries our file system since before a reboot
  if command -v mdadm >/dev/null && [ ! -e "/dev/md/$orch_label" ]; then
    orch_root mdadm --assemble "/dev/md/$orch_label" --name="any:$orch_label" </dev/null >/dev/null 2>&1 || true
  fi
  orch_root blkid --label "$orch_label" 2>/dev/null || true
}
orch_scratch() {
  local device
  local -a disks
  orch_inputs
  (umask 077 && mkdir -p -- "$ORCH_HOST_DIR")
  orch_await_claim "$ORCH_HOST_DIR/scratch.claim" 6000 || orch_fail 'another program that makes the disk does not end' 'on the host: ps'
  if orch_usable; then return 0; fi
  # AWS's images do this by themselves at boot, with LVM: wait for it. (Deep Learning AMI, dlami-nvme.service.)
  if systemctl cat dlami-nvme.service >/dev/null 2>&1; then
    orch_root timeout 300 systemctl start dlami-nvme.service >/dev/null 2>&1 || true
    if orch_usable; then return 0; fi
  fi
  device=$(orch_made)
  if [ -z "$device" ]; then
    mapfile -t disks < <(orch_disks)
    set -- "${disks[@]}"
    if [ "$#" -eq 0 ]; then
      printf 'scratch: no empty local disk here, so ORCH_SCRATCH is not set\n'
      return 0
    fi
    device=$1
    if [ "$#" -gt 1 ] && command -v mdadm >/dev/null; then
      device=/dev/md/$orch_label
      orch_try mdadm --create "$device" --run --homehost=any --name="$orch_label" --level=0 --raid-devices="$#" "$@"
    elif [ "$#" -gt 1 ]; then
      printf 'scratch: without mdadm only one of %d disks is used\n' "$#"
    fi
    orch_try mkfs.ext4 -q -m 0 -E nodiscard -L "$orch_label" "$device"
    printf 'scratch: %s at %s\n' "$*" "$orch_disk"
  fi
  orch_try mkdir -p -- "$orch_disk"
  orch_try mount -o noatime -- "$device" "$orch_disk"
  orch_try chmod 1777 -- "$orch_disk"
}

(orch_scratch)
# Every program runs this file again before it starts.
{
  printf '#!/usr/bin/env bash\nset -euo pipefail\n'
  declare -f orch_fail orch_root orch_find_boot orch_runs orch_find_claim orch_is_held orch_take_claim orch_await_claim orch_inputs orch_try orch_empty orch_disks orch_usable orch_made orch_scratch
  printf 'orch_scratch\n'
} >"$ORCH_HOST_DIR/.scratch.$$"
mv -- "$ORCH_HOST_DIR/.scratch.$$" "$ORCH_HOST_DIR/scratch.sh"
