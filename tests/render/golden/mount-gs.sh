#!/usr/bin/env bash
# Mounts a bucket of Cloud Storage with gcsfuse. Safe to run again: a mount that works is left alone, and none is ever
# taken down but one whose gcsfuse has died. Options: Cloud Storage documentation, "Cloud Storage FUSE CLI" (2026).
# shellcheck disable=SC2317 # of the functions for claims not every script needs all
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@"
set -euo pipefail

orch_fail() { # what failed, and what to do next
  printf 'mount: %s\n' "$1" >&2
  if [ -n "${2:-}" ]; then printf '  next: %s\n' "$2" >&2; fi
  exit 1
}
orch_root() { # with the rights of root where we may have them, else with our own
  if [ "$(id -u)" -ne 0 ] && sudo -n true 2>/dev/null; then sudo -n "$@"; else "$@"; fi
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
orch_folder() { # makes a folder, with the rights of root where ours do not do; never takes over one that exists
  if mkdir -p -- "$1" 2>/dev/null; then
    [ -w "$1" ] || orch_fail "the folder $1 is not ours to write in" 'choose a destination below ~'
  elif ! sudo -n mkdir -p -- "$1" 2>/dev/null || ! sudo -n chown -- "$(id -u):$(id -g)" "$1"; then
    orch_fail "cannot make the folder $1" 'choose a destination below ~'
  fi
}
orch_inputs() {
  orch_source=gs://bucket/data
  orch_bucket=bucket
  orch_key=data
  orch_target="$HOME"/'my books'
  orch_install=yes
  orch_mounts=$ORCH_HOST_DIR/mounts
  orch_id=$(printf %s "$orch_target" | sha256sum | cut -c 1-16)
  orch_tool=gcsfuse orch_shown=$orch_bucket orch_version=3.4.4
  orch_who=mount orch_mirror='' orch_otherwise='write mode: COPY'
  orch_network='give the hosts a way to the internet (Cloud NAT when they have no external address)'
  orch_home=$HOME/.orch/tools/gcsfuse-$orch_version
  PATH=$PATH:$orch_home/usr/bin
}
orch_is_ours() { [ "$2" = fuse.gcsfuse ]; } # the bucket is what is shown as mounted
orch_unpack() { dpkg-deb --extract "$1" "$2"; }
orch_needs() { # it starts fusermount3, else fusermount
  command -v fusermount3 >/dev/null || command -v fusermount >/dev/null || printf fuse3
}
orch_has_tool() { command -v gcsfuse >/dev/null; }
orch_apt() { # packages of the distribution, verified by its own keys
  command -v apt-get >/dev/null || return 1
  local -a apt=(env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get -qq -o DPkg::Lock::Timeout=300)
  local said status waits='' until=$((SECONDS + 600))
  while :; do
    status=0
    # An update that fails for one source has read the others: what is missing, the install says.
    said=$(orch_root "${apt[@]}" update 2>&1) || status=$?
    case $status,$said in
      0,* | *' lock '*) ;;
      *) status=0 ;;
    esac
    if [ "$status" -eq 0 ]; then
      said+=$'\n'$(orch_root "${apt[@]}" -y install "$@" 2>&1) || status=$?
    fi
    [ "$status" -ne 0 ] || return 0
    # The first upgrade of a fresh machine holds the lock of the lists, for which apt-get does not wait: immediately
    # status 100 (measured with apt 2.6).
    case $said in
      *' lock '*)
        if [ "$SECONDS" -lt "$until" ]; then
          [ -n "$waits" ] || printf 'waiting up to 10 min for the lock of apt-get, which another program holds\n'
          waits=yes
          sleep 3
          continue
        fi
        ;;
    esac
    printf '%s\n' "$said" >&2
    return "$status"
  done
}
orch_download() { # FILE URL: a web address, or an object of a bucket that this machine may read
  case $2 in
    gs://*) timeout 300 gcloud storage cp --quiet -- "$2" "$1" ;;
    s3://*) timeout 300 aws s3 cp --only-show-errors -- "$2" "$1" ;;
    *) curl -fsSL --retry 5 --max-time 300 -o "$1" -- "$2" ;;
  esac
}
orch_get_tool() { # to $orch_home, without the rights of root, and only with the digest that orch knows
  local machine url='' digest='' found folder needs
  machine=$(uname -m)
  case $machine in
    x86_64) url=https://github.com/GoogleCloudPlatform/gcsfuse/releases/download/v3.4.4/gcsfuse_3.4.4_amd64.deb digest=406945ecc736e8cf0eee92a617fd4a038d138c9c31e48980b99862a5f1f55bb5 ;;
    aarch64) url=https://github.com/GoogleCloudPlatform/gcsfuse/releases/download/v3.4.4/gcsfuse_3.4.4_arm64.deb digest=8587fe2ee274075d8ec5a363e32761bc523a72c531922a69dd35035a371fdf3a ;;
  esac
  url=${orch_mirror:-$url}
  if [ -z "$digest" ]; then
    orch_fail "$orch_tool $orch_version was not installed: orch knows no SHA-256 of it for $machine" \
      "take an image that has it, or $orch_otherwise; scripts/refresh_installs.py of orch adds digests"
  fi
  printf '%s: installing %s %s\n' "$orch_who" "$orch_tool" "$orch_version"
  (umask 077 && mkdir -p -- "${orch_home%/*}")
  folder=$(mktemp -d "${orch_home%/*}/.XXXXXXXX")
  if ! orch_download "$folder/download" "$url"; then
    rm -rf -- "$folder"
    orch_fail "$orch_tool $orch_version was not installed: $url does not answer" "$orch_network, or $orch_otherwise"
  fi
  found=$(sha256sum -- "$folder/download" | cut -d ' ' -f 1)
  if [ "$found" != "$digest" ]; then
    rm -rf -- "$folder"
    printf '%s: SHA-256 %s, expected %s\n' "$orch_who" "$found" "$digest" >&2
    orch_fail "$orch_tool $orch_version was not installed: the file at $url is not the one that orch knows" \
      "find out who changed it; meanwhile take an image that has the tool, or $orch_otherwise"
  fi
  mkdir -- "$folder/tool"
  if ! orch_unpack "$folder/download" "$folder/tool"; then
    rm -rf -- "$folder"
    orch_fail "$orch_tool $orch_version could not be unpacked" "read the lines above, or $orch_otherwise"
  fi
  needs=$(orch_needs "$folder/tool")
  # shellcheck disable=SC2086  # they are words
  if [ -n "$needs" ] && ! orch_apt $needs; then
    rm -rf -- "$folder"
    orch_fail "$orch_tool needs the packages $needs, which could not be installed" "read the lines above, or $orch_otherwise"
  fi
  mv -T -- "$folder/tool" "$orch_home" 2>/dev/null || true # another script of this host may have been faster
  rm -rf -- "$folder"
  orch_has_tool \
    || orch_fail "$orch_tool $orch_version was not installed: $orch_home is no folder with it" "on the host: rm -r $orch_home"
}
orch_start_tool() {
  local cache=$ORCH_HOST_DIR/cache/gcsfuse/$orch_id free
  local -a options=(--implicit-dirs --metadata-cache-ttl-secs 60 --log-file "$orch_mounts/$orch_id.log")
  (umask 077 && mkdir -p -- "$cache")
  free=$(df --output=avail -m -- "$cache" | tail -n 1)
  if [ "$free" -ge 4096 ]; then # what was read once is read from this disk, of which half stays free
    options+=(--cache-dir "$cache" --file-cache-max-size-mb "$((free / 2))" --file-cache-cache-file-for-range-read)
  fi
  [ -z "$orch_key" ] || options+=(--only-dir "$orch_key")
  gcsfuse "${options[@]}" "$orch_bucket" "$orch_target" \
    || orch_fail "$orch_source could not be mounted" \
      "does the hosts' service account have roles/storage.objectUser on it? gcloud storage ls $orch_source"
}
orch_mounted() { # prints what is mounted at the target: nothing, our tool's name for it, or "other"
  local what place kind found=''
  while read -r what place kind _; do
    printf -v place '%b' "$place" # blanks in it are written as \040
    [ "$place" != "$orch_target" ] || { if orch_is_ours "$what" "$kind"; then found=$what; else found=other; fi; }
  done <"${ORCH_PROC_MOUNTS:-/proc/self/mounts}"
  printf %s "$found"
}
orch_answers() { # whether the mount works: a broken one fails with "Transport endpoint is not connected"
  timeout 60 ls -- "$orch_target/" >/dev/null 2>&1
}
orch_mount() {
  local now
  orch_inputs
  (umask 077 && mkdir -p -- "$orch_mounts")
  orch_await_claim "$orch_mounts/$orch_id.claim" 6000 || orch_fail "another mount to $orch_target does not end" 'on the host: ps'
  now=$(orch_mounted)
  if [ -n "$now" ] && orch_answers; then
    if [ "$now" = "$orch_shown" ] && [ "$(cat -- "$orch_mounts/$orch_id.source" 2>/dev/null)" = "$orch_source" ]; then
      return 0
    fi
    orch_fail "$orch_target has another mount: $now" "choose another target, or on the host: fusermount -u $orch_target"
  fi
  if [ "$now" = other ]; then orch_fail "$orch_target has a mount that does not answer" "on the host: umount $orch_target"; fi
  if ! orch_has_tool; then
    [ "$orch_install" = yes ] || orch_fail "this host has no $orch_tool" "install it there, or $orch_otherwise"
    orch_get_tool
  fi
  if [ -n "$now" ]; then
    printf 'mount: %s has died at %s; mounting again\n' "$orch_tool" "$orch_target"
    fusermount3 -uz -- "$orch_target" 2>/dev/null || fusermount -uz -- "$orch_target" || orch_root umount -l -- "$orch_target"
  fi
  orch_folder "$orch_target"
  [ -z "$(ls -A -- "$orch_target")" ] || orch_fail "$orch_target holds files, which a mount would hide" 'choose another target'
  orch_start_tool
  if [ "$(orch_mounted)" != "$orch_shown" ] || ! orch_answers; then
    orch_fail "$orch_source is mounted and does not answer" "tail $orch_mounts/$orch_id.log"
  fi
  printf %s "$orch_source" >"$orch_mounts/$orch_id.source"
}

(orch_mount)
orch_inputs
# A reboot ends mounts: every program runs this file again before it starts.
{
  printf '#!/usr/bin/env bash\nset -euo pipefail\n'
  declare -f orch_fail orch_root orch_folder orch_inputs orch_is_ours orch_mounted orch_answers \
    orch_find_boot orch_runs orch_find_claim orch_is_held orch_take_claim orch_await_claim orch_unpack orch_needs orch_has_tool orch_download orch_get_tool orch_apt orch_start_tool orch_mount
  printf 'orch_mount\n'
} >"$orch_mounts/.$orch_id.$$"
mv -- "$orch_mounts/.$orch_id.$$" "$orch_mounts/$orch_id.sh"
