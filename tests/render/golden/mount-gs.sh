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
  orch_tool=gcsfuse orch_shown=$orch_bucket
}
orch_is_ours() { [ "$2" = fuse.gcsfuse ]; } # the bucket is what is shown as mounted
orch_get_tool() { # Cloud Storage documentation, "Install Cloud Storage FUSE", Ubuntu and Debian (2025)
  local key=/usr/share/keyrings/cloud.google.asc server=https://packages.cloud.google.com/apt release
  if [ "$orch_install" != yes ] || ! command -v apt-get >/dev/null; then
    orch_fail 'this host has no gcsfuse' 'install it there, or write mode: COPY'
  fi
  printf 'mount: installing gcsfuse\n'
  release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
  curl -fsSL --retry 2 --max-time 60 "$server/doc/apt-key.gpg" | orch_root tee "$key" >/dev/null \
    || orch_fail "cannot install gcsfuse: $server does not answer" \
      'give the hosts a way to the internet (Cloud NAT when they have no external address), or write mode: COPY'
  printf 'deb [signed-by=%s] %s gcsfuse-%s main\n' "$key" "$server" "$release" \
    | orch_root tee /etc/apt/sources.list.d/gcsfuse.list >/dev/null
  if ! orch_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 update \
    || ! orch_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 install gcsfuse; then
    orch_fail 'gcsfuse could not be installed' 'read the lines above, or write mode: COPY'
  fi
}
orch_start_tool() {
  local cache=$HOME/.orch/cache/gcsfuse/$orch_id free
  local -a options=(--implicit-dirs --metadata-cache-ttl-secs 60 --log-file "$orch_mounts/$orch_id.log")
  mkdir -p -- "$cache"
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
  mkdir -p -- "$orch_mounts"
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
  command -v "$orch_tool" >/dev/null || orch_get_tool
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
  declare -f orch_fail orch_root orch_folder orch_inputs orch_is_ours orch_mounted orch_answers orch_get_tool orch_start_tool orch_mount
  printf 'orch_mount\n'
} >"$orch_mounts/.$orch_id.$$"
mv -- "$orch_mounts/.$orch_id.$$" "$orch_mounts/$orch_id.sh"
