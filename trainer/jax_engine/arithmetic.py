"""Matrix products with weights that are sharded over the mesh, and the communication that they need.

The whole step runs inside one `jax.shard_map`: functions see one device's shards. A weight is sharded over `fsdp`; it
is gathered where it is used, in the products' type, and once more for the backward pass, so no copy is kept in between.
The backward pass of a recomputed block uses what the recomputation gathered. A weight's gradient is computed and summed
in fp32. Over `tensor` the parts follow Megatron-LM with sequence parallelism (Korthikanti et al. 2022, arXiv
2205.05198, section 4.2.2): between products each device has some tokens of each row. Products with sharded outputs read
all of them, which are gathered, and what products with sharded inputs add up to is scattered over the tokens. JAX's own
gradient of each of the two is the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from jax import Array

from trainer.config import DTypeName
from trainer.jax_engine.library import ad_checkpoint, jax, jnp, lax
from trainer.shape.mesh import Mesh

DATA: Final = "data"
FSDP: Final = "fsdp"
TENSOR: Final = "tensor"
AXES: Final = (DATA, FSDP, TENSOR)
SCATTERED: Final = "scattered"
"""Name of what selective recomputation keeps, so that sums over the tensor axis are not repeated."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Number formats of the products, and the mesh.

    Attributes:
        dtype: Of matrix products.
        mesh: Static, so that an axis of size one costs nothing.
        recomputed: Whether blocks are recomputed, so that what a product gathers is kept for one block at most.
    """

    dtype: DTypeName
    mesh: Mesh
    recomputed: bool = False

    @property
    def type(self) -> Any:
        return jnp.float32 if self.dtype == "fp32" else jnp.bfloat16

    @property
    def precision(self) -> Any:
        """Precision of the products; with fp32, TPUs and newer GPUs would otherwise round the factors."""
        return lax.Precision.HIGHEST if self.dtype == "fp32" else lax.Precision.DEFAULT


def dot(arithmetic: Arithmetic, left: Array, right: Array, over: tuple[Any, Any], out: Any) -> Array:
    """Sum products over the dimensions `over` of each factor, in fp32, and return type `out`."""
    result: Array = lax.dot_general(
        left, right, (over, ((), ())), precision=arithmetic.precision, preferred_element_type=out
    )
    return result


def matmul(arithmetic: Arithmetic, divided: int | None, x: Array, weight: Array) -> Array:
    """Compute x @ weight.T.

    Args:
        arithmetic: Type of the products.
        divided: Dimension along which the weight is sharded over fsdp; None for a copy, whose gradient is not summed.
        x: Shape (..., in).
        weight: This device's shard of an (out, in) matrix in fp32.

    Returns:
        Shape (..., out), in the products' type.
    """
    result: Array = _differentiable_product(arithmetic, divided, x, weight)
    return result


def gather_vector(arithmetic: Arithmetic, part: Array) -> Array:
    """Gather a norm's whole weight from this device's shard."""
    result: Array = _differentiable_vector(arithmetic, part)
    return result


def gather_tokens(arithmetic: Arithmetic, own: Array, dimension: int = 1) -> Array:
    """Return the values of all tokens, which the tensor axis divides along that dimension."""
    if arithmetic.mesh.tensor == 1:
        return own
    result: Array = lax.all_gather(own, TENSOR, axis=dimension, tiled=True)
    return result


def scatter_sum(arithmetic: Arithmetic, x: Array, dimension: int = 1) -> Array:
    """Sum each device's x over the tensor axis, and keep this device's tokens, which are along that dimension."""
    if arithmetic.mesh.tensor == 1:
        return x
    found = lax.psum_scatter(x, TENSOR, scatter_dimension=dimension, tiled=True)
    result: Array = ad_checkpoint.checkpoint_name(found, SCATTERED)
    return result


def gather_fsdp(arithmetic: Arithmetic, part: Array, divided: int | None) -> Array:
    """Gather what is sharded over fsdp along that dimension, if any; not differentiable."""
    if arithmetic.mesh.fsdp == 1 or divided is None:
        return part
    result: Array = lax.all_gather(part, FSDP, axis=divided, tiled=True)
    return result


def reduce_scatter_fsdp(arithmetic: Arithmetic, whole: Array, divided: int | None) -> Array:
    """Sum each device's `whole` over fsdp, and keep this device's shard along that dimension, if any."""
    if arithmetic.mesh.fsdp == 1 or divided is None:
        return whole
    result: Array = lax.psum_scatter(whole, FSDP, scatter_dimension=divided, tiled=True)
    return result


def sum_over_tensor(arithmetic: Arithmetic, x: Array) -> Array:
    """Sum over the tensor axis; for values that are not differentiated."""
    return lax.psum(x, TENSOR) if arithmetic.mesh.tensor > 1 else x


def _product(arithmetic: Arithmetic, divided: int | None, x: Array, weight: Array) -> Array:
    return _multiply(arithmetic, x, gather_fsdp(arithmetic, weight.astype(arithmetic.type), divided))


def _multiply(arithmetic: Arithmetic, x: Array, whole: Array) -> Array:
    return dot(arithmetic, x.astype(arithmetic.type), whole, ((x.ndim - 1,), (1,)), arithmetic.type)


def _product_forward(
    arithmetic: Arithmetic, divided: int | None, x: Array, weight: Array
) -> tuple[Array, tuple[Array, Array]]:
    if not arithmetic.recomputed:
        return _product(arithmetic, divided, x, weight), (x, weight)
    whole = gather_fsdp(arithmetic, weight.astype(arithmetic.type), divided)
    return _multiply(arithmetic, x, whole), (x, whole)


def _product_backward(
    arithmetic: Arithmetic, divided: int | None, kept: tuple[Array, Array], slope: Array
) -> tuple[Array, Array]:
    x, weight = kept
    if arithmetic.mesh.fsdp > 1 and divided is not None and not arithmetic.recomputed:
        # Without the barrier the compiler reuses what the forward pass gathered, and keeps it for every layer.
        weight, slope = lax.optimization_barrier((weight, slope))
    whole = weight if arithmetic.recomputed else gather_fsdp(arithmetic, weight.astype(arithmetic.type), divided)
    by_x = dot(arithmetic, slope, whole, ((slope.ndim - 1,), (0,)), arithmetic.type).astype(x.dtype)
    rows = tuple(range(x.ndim - 1))
    by_weight = dot(arithmetic, slope, x.astype(arithmetic.type), (rows, rows), jnp.float32)
    return by_x, reduce_scatter_fsdp(arithmetic, by_weight, divided)


def _vector(arithmetic: Arithmetic, part: Array) -> Array:
    return gather_fsdp(arithmetic, part, 0)


def _vector_forward(arithmetic: Arithmetic, part: Array) -> tuple[Array, None]:
    return _vector(arithmetic, part), None


def _vector_backward(arithmetic: Arithmetic, kept: None, slope: Array) -> tuple[Array]:
    return (reduce_scatter_fsdp(arithmetic, slope, 0),)


_differentiable_product: Any = jax.custom_vjp(_product, nondiff_argnums=(0, 1))
_differentiable_product.defvjp(_product_forward, _product_backward)
_differentiable_vector: Any = jax.custom_vjp(_vector, nondiff_argnums=(0,))
_differentiable_vector.defvjp(_vector_forward, _vector_backward)
