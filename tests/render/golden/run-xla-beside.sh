#!/usr/bin/env bash
# Runs the program on one host. The same text on every host: what differs comes from the environment.
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@"
set -euo pipefail

orch_fail() { # what failed, and what to do next
  printf 'run: %s\n' "$1" >&2
  if [ -n "${2:-}" ]; then printf '  next: %s\n' "$2" >&2; fi
  exit 1
}
for orch_name in HOME ORCH_RANK ORCH_NUM_HOSTS ORCH_COORDINATOR; do
  [ -n "${!orch_name:-}" ] || orch_fail "$orch_name is not set" 'start it with orch, or export the variables of docs/environment.md'
done

# A reboot ends the mounts of local disks and buckets, and what is there then is an empty folder: see templates/mount/.
for orch_mount in "$HOME"/.orch/scratch.sh "$HOME"/.orch/mounts/*.sh; do
  if [ -e "$orch_mount" ]; then
    bash -- "$orch_mount" || orch_fail 'a disk or a bucket is not mounted any more' "read the line above; without it: rm $orch_mount"
  fi
done

# A name that is set already, by `envs` or by the image, is left alone, here and below.
orch_head=${ORCH_COORDINATOR%:*}
orch_head=${orch_head#\[}
orch_head=${orch_head%\]}
export MASTER_ADDR="${MASTER_ADDR-$orch_head}" MASTER_PORT="${MASTER_PORT-${ORCH_COORDINATOR##*:}}"

# torch_xla takes its place in the slice from the TPU VM's own metadata; it only has to be told to use the TPU.
export PJRT_DEVICE="${PJRT_DEVICE-TPU}"

# Several slices: libtpu joins them by these, and JAX takes coordinator and numbers of its processes from them
# (jax/_src/clusters/cloud_tpu_cluster.py; names and port as in ray.util.tpu, 2026). A multislice queued resource brings
# them in the metadata of its hosts, where libtpu and JAX find them by themselves: then they stay as they are.
orch_told_slices() {
  [ -n "${MEGASCALE_COORDINATOR_ADDRESS+set}${MEGASCALE_NUM_SLICES+set}${MEGASCALE_SLICE_ID+set}" ] && return 0
  curl -fsS --max-time 5 -H 'Metadata-Flavor: Google' \
    "http://${GCE_METADATA_HOST:-metadata.google.internal}/computeMetadata/v1/instance/attributes/tpu-env" 2>/dev/null \
    | grep -q '^ *MEGASCALE_COORDINATOR_ADDRESS:'
}
if [ "${ORCH_NUM_SLICES:-1}" -gt 1 ] && ! orch_told_slices; then
  export MEGASCALE_COORDINATOR_ADDRESS="$orch_head" MEGASCALE_PORT="${MEGASCALE_PORT-8081}"
  export MEGASCALE_NUM_SLICES="$ORCH_NUM_SLICES" MEGASCALE_SLICE_ID="${ORCH_SLICE_ID:-0}"
fi

# From here on it is an ordinary bash script: our names and options are gone, the last command's status counts.
case ":$PATH:" in *":$HOME/.local/bin:"*) ;; *) export PATH="$HOME/.local/bin:$PATH" ;; esac
export PYTHONUNBUFFERED="${PYTHONUNBUFFERED-1}"
cd -- "$HOME"
set +euo pipefail
for orch_conda in "$HOME/miniconda3" "$HOME/miniforge3" "$HOME/anaconda3" /opt/conda; do
  # shellcheck disable=SC1091 # the file is conda's own, on the host
  if [ -r "$orch_conda/etc/profile.d/conda.sh" ]; then . "$orch_conda/etc/profile.d/conda.sh"; fi
done
unset -f orch_expect orch_devices orch_told_slices orch_wait_turn orch_sort_holders orch_fail orch_root orch_holders orch_owner_lives orch_clear orch_apt orch_find_python orch_make_venv orch_dropped orch_beside
unset -v "${!orch_@}"
# ---- program of the task ----
python train.py --rank "$ORCH_RANK"
