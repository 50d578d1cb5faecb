"""The context axis on JAX: which tokens of a row a device has, and the ring on which its keys and values travel.

A row is cut into two parts for each of the C devices that share it. Device i has part i and part 2 C - 1 - i, so that
all have as much to do under a causal mask. trainer/shape/mesh.py says which devices share rows.
"""

from __future__ import annotations

from typing import Any

from jax import Array

from trainer.jax_engine.arithmetic import DATA, FSDP
from trainer.jax_engine.library import jax, jnp, lax
from trainer.shape.mesh import Mesh


def take_own_tokens(mesh: Mesh, values: Array) -> Array:
    """Return this device's part of values whose second dimension is that of the tokens of whole rows."""
    if mesh.context == 1:
        return values
    own = get_context_index(mesh)
    found = [take_part(mesh, values, part) for part in (own, 2 * mesh.context - 1 - own)]
    result: Array = jnp.concatenate(found, axis=1)
    return result


def take_part(mesh: Mesh, values: Array, part: Array) -> Array:
    """Return one of the 2 C parts of values of whole rows."""
    size = values.shape[1] // (2 * mesh.context)
    result: Array = lax.dynamic_slice_in_dim(values, part * size, size, axis=1)
    return result


def get_context_index(mesh: Mesh) -> Array:
    """Return which of the devices with the same rows this one is."""
    found: Array = lax.axis_index((DATA, FSDP)) % mesh.context
    return found


def send_to_next(mesh: Mesh, values: Any) -> Any:
    """Send arrays to the next device of the ring, and return those of the device before."""
    pairs = [
        (first + index, first + (index + 1) % mesh.context)
        for first in range(0, mesh.tensor_groups, mesh.context)
        for index in range(mesh.context)
    ]

    def send(value: Array) -> Array:
        result: Array = lax.ppermute(value, (DATA, FSDP), pairs)
        return result

    return jax.tree.map(send, values)
