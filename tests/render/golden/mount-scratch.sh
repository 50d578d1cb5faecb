#!/usr/bin/env bash
# Makes the local NVMe disks of an EC2 instance one folder. Safe to run again, and after a reboot; after a stop the disks
# come back empty. Only disks that call themselves instance storage, and that hold nothing at all, are ever written to.
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@"
set -euo pipefail

orch_fail() { # what failed, and what to do next
  printf 'scratch: %s\n' "$1" >&2
  if [ -n "${2:-}" ]; then printf '  next: %s\n' "$2" >&2; fi
  exit 1
}
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
  (umask 077 && mkdir -p -- "$HOME/.orch")
  exec 9>"$HOME/.orch/scratch.lock"
  flock 9
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
  declare -f orch_fail orch_root orch_inputs orch_try orch_empty orch_disks orch_usable orch_made orch_scratch
  printf 'orch_scratch\n'
} >"$HOME/.orch/.scratch.$$"
mv -- "$HOME/.orch/.scratch.$$" "$HOME/.orch/scratch.sh"
