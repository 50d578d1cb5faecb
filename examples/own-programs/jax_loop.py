"""A plain JAX loop that resumes; the state is a tree of arrays, saved with numpy alone."""

import os
import time

import jax
import jax.numpy as jnp
import numpy as np

import orch_run

STEPS, EVERY, ROWS = 60, 10, 8

run = orch_run.init()
if run.world > 1:
    jax.distributed.initialize()
key = jax.random.key(0)
state = {"w": jax.random.normal(key, (16, 1)), "velocity": jnp.zeros((16, 1))}


@jax.jit
def train(state, inputs):
    loss, slope = jax.value_and_grad(lambda w: jnp.mean((inputs @ w - inputs.sum(1, keepdims=True)) ** 2))(state["w"])
    velocity = 0.9 * state["velocity"] + slope
    return {"w": state["w"] - 0.01 * velocity, "velocity": velocity}, loss


step = run.restore("restored") or 0
if step:
    leaves, tree = jax.tree.flatten(state)
    saved = np.load("restored/state.npz")
    state = jax.tree.unflatten(tree, [jnp.asarray(saved[str(index)]) for index in range(len(leaves))])

while step < STEPS:
    state, loss = train(state, jax.random.normal(jax.random.fold_in(key, step), (ROWS, 16)))
    time.sleep(float(os.environ.get("STEP_SECONDS", "0")))  # a rehearsal takes a while to notice a step
    step += 1
    run.heartbeat(step, {"loss": float(loss)})
    stop = run.should_stop()  # asked once: a request that comes later is for the next step
    if step % EVERY == 0 or stop or step == STEPS:
        folder = run.new_folder()
        np.savez(folder / "state.npz", **{str(index): leaf for index, leaf in enumerate(jax.tree.leaves(state))})
        run.save(folder, step, {"loss": float(loss)})
    if stop and step < STEPS:
        run.wait()
        raise SystemExit(orch_run.STOPPED)
run.wait()
if run.rank == 0:
    print(f"done: step {step}, loss {run.latest().meta['loss']}", flush=True)
