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
[ -n "${ORCH_PYTHON:-}" ] || ORCH_PYTHON=$HOME/.orch/venv/bin/python
export ORCH_PYTHON PYTHONPATH="$HOME/.orch/trainer${PYTHONPATH:+:$PYTHONPATH}"
command -v -- "$ORCH_PYTHON" >/dev/null || orch_fail "there is no Python at $ORCH_PYTHON" 'orch launch again: setup makes it'

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

# jax.distributed.initialize() reads the first by itself; the other two are for its arguments num_processes and process_id
# where it cannot find them out (CPU, GPU, Trainium). Source: jax 0.10.2, jax/_src/distributed.py (November 2026).
export JAX_COORDINATOR_ADDRESS="${JAX_COORDINATOR_ADDRESS-$ORCH_COORDINATOR}"
export JAX_NUM_PROCESSES="${JAX_NUM_PROCESSES-$ORCH_NUM_HOSTS}" JAX_PROCESS_ID="${JAX_PROCESS_ID-$ORCH_RANK}"

export PYTHONUNBUFFERED="${PYTHONUNBUFFERED-1}"
cd -- "$HOME"
set -- "$ORCH_PYTHON" -m trainer \
  engine=jax \
  device=cpu \
  model=tiny \
  steps=120 \
  'data=file:///data/my books'
exec -- "$@"
