"""JAX with the type Any, because its annotations are partial and strict checkers would report each call.

`Array` is annotated well enough and comes from JAX itself.
"""

from __future__ import annotations

from typing import Any

import jax as _jax
import jax.ad_checkpoint as _ad_checkpoint
import jax.experimental.mesh_utils as _mesh_utils
import jax.experimental.topologies as _topologies
import jaxlib as _jaxlib

jax: Any = _jax
jnp: Any = _jax.numpy
lax: Any = _jax.lax
ad_checkpoint: Any = _ad_checkpoint
mesh_utils: Any = _mesh_utils
topologies: Any = _topologies
versions: str = f"jax {_jax.__version__}, jaxlib {getattr(_jaxlib, '__version__', '')}"
