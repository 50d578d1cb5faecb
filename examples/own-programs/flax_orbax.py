"""Flax, optax and Orbax over several hosts: the weights are sharded, and every process saves its shards."""

import os
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

import orch_run
from orch_run.orbax import load, save

STEPS, EVERY, ROWS = 60, 10, 8

run = orch_run.init()
if run.world > 1:
    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"  # orch sets both
    jax.distributed.initialize(address, run.world, run.rank)
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("fsdp",))
model = nn.Sequential([nn.Dense(32), nn.tanh, nn.Dense(1)])
optimizer = optax.adamw(1e-2)


def make(key):
    weights = model.init(key, jnp.zeros((1, 16)))
    return {"weights": weights, "optimizer": optimizer.init(weights)}


def shard(leaf):
    split = leaf.ndim == 2 and leaf.shape[0] % jax.device_count() == 0
    return NamedSharding(mesh, PartitionSpec("fsdp") if split else PartitionSpec())


key = jax.random.key(0)
places = jax.tree.map(shard, jax.eval_shape(make, key))
state = jax.jit(make, out_shardings=places)(key)


@jax.jit
def train(state, inputs):
    def measure(weights):
        return jnp.mean((model.apply(weights, inputs) - inputs.sum(1, keepdims=True)) ** 2)

    loss, slopes = jax.value_and_grad(measure)(state["weights"])
    changes, moments = optimizer.update(slopes, state["optimizer"], state["weights"])
    state = {"weights": optax.apply_updates(state["weights"], changes), "optimizer": moments}
    return jax.lax.with_sharding_constraint(state, places), loss


step, state = load(run, state, "restored")
while step < STEPS:
    rows = np.random.default_rng([step, run.rank]).standard_normal((ROWS, 16), np.float32)  # follow from the step
    inputs = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("fsdp")), rows)
    state, loss = train(state, inputs)
    time.sleep(float(os.environ.get("STEP_SECONDS", "0")))  # a rehearsal takes a while to notice a step
    step += 1
    run.heartbeat(step, {"loss": float(loss)})
    stop = multihost_utils.process_allgather(np.array(run.should_stop())).any()  # one that stops stops all
    if step % EVERY == 0 or stop or step == STEPS:
        save(run, step, state, {"loss": float(loss)})
    if stop and step < STEPS:
        run.wait()
        raise SystemExit(orch_run.STOPPED)
run.wait()
if run.rank == 0:
    print(f"done: step {step}, loss {run.latest().meta['loss']}", flush=True)
