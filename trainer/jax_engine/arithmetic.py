"""Matrix products and weights that lie divided over the mesh: what travels between devices is written here.

The whole step runs inside one `jax.shard_map`: functions see what lies on one device. A weight is divided over `fsdp`;
it is gathered where it is used, in the products' type, and again in the backward pass, so no copy waits in between. Its
gradient is made and summed in fp32. Over `tensor` the parts follow Megatron-LM (Shoeybi et al. 2019, section 3): an
identity whose gradient is summed goes in front of divided outputs, a sum whose gradient is an identity behind divided
inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from jax import Array

from trainer.config import DTypeName
from trainer.jax_engine.library import jax, jnp, lax
from trainer.shape.mesh import Mesh

DATA: Final = "data"
FSDP: Final = "fsdp"
TENSOR: Final = "tensor"
AXES: Final = (DATA, FSDP, TENSOR)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """dtype: of matrix products; fp16 is computed as bf16. mesh: static, so that an axis of one costs nothing."""

    dtype: DTypeName
    mesh: Mesh

    @property
    def type(self) -> Any:
        return jnp.float32 if self.dtype == "fp32" else jnp.bfloat16

    @property
    def precision(self) -> Any:
        """fp32 means fp32: TPUs and newer GPUs would round the factors without this."""
        return lax.Precision.HIGHEST if self.dtype == "fp32" else lax.Precision.DEFAULT


def dot(arithmetic: Arithmetic, left: Array, right: Array, over: tuple[Any, Any], out: Any) -> Array:
    """Sum of products over the dimensions `over` of each; the sum is kept in fp32 and given as type `out`."""
    result: Array = lax.dot_general(
        left, right, (over, ((), ())), precision=arithmetic.precision, preferred_element_type=out
    )
    return result


def product(arithmetic: Arithmetic, divided: int, x: Array, weight: Array) -> Array:
    """x @ weight.T. x: (..., in). weight: this device's part of an (out, in) matrix in fp32, divided over fsdp along
    dimension `divided`. Returns (..., out) in the products' type."""
    result: Array = _differentiable_product(arithmetic, divided, x, weight)
    return result


def vector(arithmetic: Arithmetic, part: Array) -> Array:
    """A norm's weight, whole, from the part of it on this device."""
    result: Array = _differentiable_vector(arithmetic, part)
    return result


def enter(arithmetic: Arithmetic, x: Array) -> Array:
    """x, the same on all devices of the tensor axis, goes into products whose outputs are divided."""
    result: Array = _differentiable_enter(arithmetic, x)
    return result


def leave(arithmetic: Arithmetic, x: Array) -> Array:
    """x is each device's share of a sum over the tensor axis; the sum comes out."""
    result: Array = _differentiable_leave(arithmetic, x)
    return result


def gathered(arithmetic: Arithmetic, part: Array, divided: int) -> Array:
    """The whole of what is divided over fsdp along that dimension. Not to be differentiated."""
    return lax.all_gather(part, FSDP, axis=divided, tiled=True) if arithmetic.mesh.fsdp > 1 else part


def scattered(arithmetic: Arithmetic, whole: Array, divided: int) -> Array:
    """Sum over fsdp of each device's `whole`; each keeps its part along that dimension."""
    if arithmetic.mesh.fsdp == 1:
        return whole
    result: Array = lax.psum_scatter(whole, FSDP, scatter_dimension=divided, tiled=True)
    return result


def over_tensor(arithmetic: Arithmetic, x: Array) -> Array:
    """Sum over the tensor axis. Not to be differentiated: see `enter` and `leave`."""
    return lax.psum(x, TENSOR) if arithmetic.mesh.tensor > 1 else x


def _product(arithmetic: Arithmetic, divided: int, x: Array, weight: Array) -> Array:
    whole = gathered(arithmetic, weight.astype(arithmetic.type), divided)
    return dot(arithmetic, x.astype(arithmetic.type), whole, ((x.ndim - 1,), (1,)), arithmetic.type)


def _product_forward(
    arithmetic: Arithmetic, divided: int, x: Array, weight: Array
) -> tuple[Array, tuple[Array, Array]]:
    return _product(arithmetic, divided, x, weight), (x, weight)


def _product_backward(
    arithmetic: Arithmetic, divided: int, kept: tuple[Array, Array], slope: Array
) -> tuple[Array, Array]:
    x, weight = kept
    if arithmetic.mesh.fsdp > 1:
        # Without the barrier the compiler sees that the forward pass gathered the same, and keeps every layer's.
        weight, slope = lax.optimization_barrier((weight, slope))
    whole = gathered(arithmetic, weight.astype(arithmetic.type), divided)
    by_x = dot(arithmetic, slope, whole, ((slope.ndim - 1,), (0,)), arithmetic.type).astype(x.dtype)
    rows = tuple(range(x.ndim - 1))
    by_weight = dot(arithmetic, slope, x.astype(arithmetic.type), (rows, rows), jnp.float32)
    return by_x, scattered(arithmetic, by_weight, divided)


def _vector(arithmetic: Arithmetic, part: Array) -> Array:
    return gathered(arithmetic, part, 0)


def _vector_forward(arithmetic: Arithmetic, part: Array) -> tuple[Array, None]:
    return _vector(arithmetic, part), None


def _vector_backward(arithmetic: Arithmetic, kept: None, slope: Array) -> tuple[Array]:
    return (scattered(arithmetic, slope, 0),)


def _same(arithmetic: Arithmetic, x: Array) -> Array:
    return x


def _same_forward(arithmetic: Arithmetic, x: Array) -> tuple[Array, None]:
    return x, None


def _same_backward(arithmetic: Arithmetic, kept: None, slope: Array) -> tuple[Array]:
    return (slope,)


def _sum_forward(arithmetic: Arithmetic, x: Array) -> tuple[Array, None]:
    return over_tensor(arithmetic, x), None


def _sum_backward(arithmetic: Arithmetic, kept: None, slope: Array) -> tuple[Array]:
    return (over_tensor(arithmetic, slope),)


_differentiable_product: Any = jax.custom_vjp(_product, nondiff_argnums=(0, 1))
_differentiable_product.defvjp(_product_forward, _product_backward)
_differentiable_vector: Any = jax.custom_vjp(_vector, nondiff_argnums=(0,))
_differentiable_vector.defvjp(_vector_forward, _vector_backward)
_differentiable_enter: Any = jax.custom_vjp(_same, nondiff_argnums=(0,))
_differentiable_enter.defvjp(_same_forward, _sum_backward)
_differentiable_leave: Any = jax.custom_vjp(over_tensor, nondiff_argnums=(0,))
_differentiable_leave.defvjp(_sum_forward, _same_backward)
