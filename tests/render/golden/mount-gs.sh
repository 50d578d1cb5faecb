#!/usr/bin/env bash
# Mounts a bucket of Cloud Storage with gcsfuse. Safe to run again: a mount that works is left alone, and none is ever
# taken down but one whose gcsfuse has died. Options: Cloud Storage documentation, "Cloud Storage FUSE CLI" (2026).
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
  orch_mounts=$HOME/.orch/mounts
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
  local cache=$HOME/.orch/cache/gcsfuse/$orch_id free
  local -a options=(--implicit-dirs --metadata-cache-ttl-secs 60 --log-file "$orch_mounts/$orch_id.log")
  (umask 077 && mkdir -p -- "$cache")
  free=$(df --output=avail -m -- "$cache" | tail -n 1)
  if [ "$free" -ge 4096 ]; then # what was read once is read from this disk, of which half stays free
    options+=(--cache-dir "$cache" --file-cache-max-size-mb "$((free / 2))" --file-cache-cache-file-for-range-read)
  fi
  [ -z "$orch_key" ] || options+=(--only-dir "$orch_key")
  gcsfuse "${options[@]}" "$orch_bucket" "$orch_target" 9>&- \
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
  exec 9>"$orch_mounts/$orch_id.lock"
  flock 9
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
    orch_unpack orch_needs orch_has_tool orch_download orch_get_tool orch_apt orch_start_tool orch_mount
  printf 'orch_mount\n'
} >"$orch_mounts/.$orch_id.$$"
mv -- "$orch_mounts/.$orch_id.$$" "$orch_mounts/$orch_id.sh"
