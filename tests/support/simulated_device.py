"""A device that torch does not know, in plain Python: registered as `tpu` or `neuron`, computing on the processor.

torch's hooks for backends written in Python make it a device like any other: torch.accelerator reports it, tensors say
that they are on it, and mixing them with the processor's is an error. Every operation comes through one fallback, which
counts it by name. One such device a process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils import backend_registration

KEY = "PrivateUse1"


class SimulatedDevice:
    """A device with counters: ops for each operation it was given, synchronized for each wait."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ops: Counter[str] = Counter()
        self.synchronized = 0
        # What a tensor of the device holds, on the processor, by the address of its storage (which `.data` shares).
        self._held: dict[int, Tensor] = {}
        self._copies: set[int] = set()
        self._libraries: list[torch.library.Library] = []

    def register(self) -> None:
        hooks: Any = torch._C._acc

        class Module(backend_registration._DummyBackendModule):
            def get_amp_supported_dtype(self) -> list[torch.dtype]:
                return [torch.bfloat16]

            def is_available(self) -> bool:
                return True

        class Hook(hooks.PrivateUse1Hooks):  # type: ignore[misc]  # torch does not annotate it
            def is_available(self) -> bool:
                return True

            def is_built(self) -> bool:
                return True

            def has_primary_context(self, dev_id: int) -> bool:
                return True

        unchecked: Any = backend_registration
        unchecked._setup_privateuseone_for_python_backend(self.name, Module(), Hook(), None)
        everything = torch.library.Library("_", "IMPL")
        unannotated: Any = everything
        unannotated.fallback(self._run, KEY)
        casts: Any = torch.library.Library("_", "IMPL")
        casts.fallback(torch.library.fallthrough_kernel, f"Autocast{KEY}")
        self._libraries += [everything, casts, *self._casting()]
        torch.accelerator.synchronize = self._synchronize

    def _casting(self) -> list[torch.library.Library]:
        """Products in the narrow type under autocast, as a real backend declares them."""
        library = torch.library.Library("aten", "IMPL")
        for name in ("mm", "addmm", "bmm", "matmul", "linear"):
            operation = getattr(torch.ops.aten, name).default

            def narrow(*arguments: Any, _operation: Any = operation, **more: Any) -> Any:
                kind = torch.get_autocast_dtype(self.name)
                with torch._C._ExcludeDispatchKeyGuard(
                    torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
                ):
                    cast = [a.to(kind) if isinstance(a, Tensor) and a.dtype == torch.float32 else a for a in arguments]
                    return _operation(*cast, **more)

            library.impl(name, narrow, f"Autocast{KEY}")
        return [library]

    def _synchronize(self, *_: Any) -> None:
        self.synchronized += 1

    def _run(self, operation: Any, *arguments: Any, **named: Any) -> Any:
        name = operation._schema.name.removeprefix("aten::")
        self.ops[name] += 1
        if name == "_copy_from":
            source, target = arguments[0], arguments[1]
            self.ops["from the processor"] += source.device.type != self.name
            self._raw(target).copy_(self._raw(source))
            return target
        target = arguments[0] if name.endswith("_") and arguments else None
        if isinstance(target, Tensor) and target.untyped_storage()._cdata in self._copies:
            raise RuntimeError(f"{name}: this simulated device cannot write through a view that has gaps")
        known: dict[int, Tensor] = {}

        def inward(value: Any) -> Any:
            if isinstance(value, Tensor):
                raw = self._raw(value)
                if raw is not value:
                    known[id(raw)] = value
                elif value.dim() and name not in ("index.Tensor", "index", "index_put_"):
                    raise RuntimeError(f"{name}: a tensor of the processor among those of {self.name}")
                return raw
            if isinstance(value, torch.device) and value.type == self.name:
                return torch.device("cpu")
            return value

        def outward(value: Any) -> Any:
            return known[id(value)] if id(value) in known else self._wrapped(value)

        arguments, named = pytree.tree_map(inward, (arguments, named))
        named.pop("pin_memory", None)
        if name == "as_strided":
            base, size, stride, *offset = arguments
            start = base.storage_offset() + (offset[0] or 0 if offset else 0)
            return self._wrapped(base.as_strided(size, stride, start))
        return pytree.tree_map(outward, operation(*arguments, **named))

    def _raw(self, tensor: Tensor) -> Tensor:
        if tensor.device.type != self.name:
            return tensor
        held = self._held[tensor.untyped_storage()._cdata]
        if held.shape == tensor.shape and tensor.is_contiguous():
            return held
        # Torch itself made another view of the same storage.
        return held.as_strided(tensor.shape, tensor.stride(), held.storage_offset() + tensor.storage_offset())

    def _wrapped(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        unchecked: Any = torch._C._acc
        outer: Tensor = unchecked.create_empty_tensor(tuple(value.shape), value.dtype)
        address = outer.untyped_storage()._cdata
        # Torch believes that what the hooks made lies without gaps, and reckons with it.
        self._held[address] = value.contiguous()
        (self._copies.discard if value.is_contiguous() else self._copies.add)(address)
        return outer


def operations(device: SimulatedDevice) -> Sequence[str]:
    return sorted(device.ops)
