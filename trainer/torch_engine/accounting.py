"""Accounting of a step's memory and collectives, from the operations on fake tensors."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch._guards import active_fake_mode
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from trainer.torch_engine.ring_attention import DECOMPOSITIONS

_KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send")


@dataclass(frozen=True, slots=True)
class Collective:
    """The collectives of one kind in a step.

    Attributes:
        kind: all_reduce, all_gather, reduce_scatter, all_to_all or broadcast; send: to another stage of a pipeline.
        count: Number of calls in a step.
        bytes: Size of the whole buffers (which each device starts or ends with), summed over all calls.
    """

    kind: str
    count: int
    bytes: int


class ResourceAccount(TorchDispatchMode):
    """Records, while it is entered, the bytes of all live storages, their peak, and every collective.

    The cost per operation is constant; torch's own MemTracker inspects all storages after each operation.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.peak = 0
        self._now = 0
        self._alive: dict[int, int] = {}
        self._counts: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._resize: Any = None
        self._mode: Any = None
        self._entered = 0

    def collectives(self) -> tuple[Collective, ...]:
        return tuple(Collective(kind, self._counts[kind], self._bytes[kind]) for kind in sorted(self._counts))

    def __enter__(self) -> ResourceAccount:
        # FSDP2 frees and reallocates gathered weights by this call, which is not an operation on tensors.
        storage: Any = torch.UntypedStorage
        original = self._resize = storage.resize_

        def resize(this: Any, size: int) -> Any:
            result = original(this, size)
            self._see(this)
            return result

        storage.resize_ = resize
        self._mode = active_fake_mode()
        self._entered = self._count_entered()
        super().__enter__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return self

    def __exit__(self, *error: Any) -> None:
        storage: Any = torch.UntypedStorage
        storage.resize_ = self._resize
        super().__exit__(*error)  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # DTensor first turns it into operations on local tensors
        if active_fake_mode() is not self._mode or self._count_entered() != self._entered:
            return func(*args, **(kwargs or {}))  # DTensor computes the shape of a whole tensor: no memory
        if func is torch.ops._c10d_functional.wait_tensor.default:
            return args[0]  # the fake operation would make another tensor
        decomposition = DECOMPOSITIONS.get(func.name())
        if decomposition is not None:  # what it sends and allocates within counts, too
            with self._entered_again():
                return decomposition(*args, **(kwargs or {}))
        result = func(*args, **(kwargs or {}))
        kind = _kind(func)
        if kind:
            self._counts[kind] += 1
            self._bytes[kind] += max(t.numel() * t.element_size() for t in _tensors((args, result)))
        for tensor in _tensors(result):
            self._see(tensor.untyped_storage())
        return result

    def _count_entered(self) -> int:
        """Return how often the fake mode is entered, which DTensor (torch 2.13) does once more for whole tensors."""
        return 0 if self._mode is None else len(self._mode.enter_stack)

    @contextmanager
    def _entered_again(self) -> Generator[None]:
        """Record the operations of which one consists."""
        mode: Any = super()  # torch leaves it untyped
        mode.__enter__()
        try:
            yield
        finally:
            mode.__exit__(None, None, None)

    def _see(self, storage: Any) -> None:
        key, size = int(storage._cdata), int(storage.nbytes())
        before = self._alive.get(key)
        if before is None:
            weakref.finalize(storage, self._forget, key)
        if before != size:
            self._alive[key] = size
            self._now += size - (before or 0)
            self.peak = max(self.peak, self._now)

    def _forget(self, key: int) -> None:
        self._now -= self._alive.pop(key, 0)


def _kind(func: Any) -> str:
    """Return the kind of a collective, or "" for an operation that communicates nothing."""
    if func.namespace not in ("c10d", "_c10d_functional"):
        return ""
    name = str(func).partition(".")[2].replace("_", "")
    return next((kind for kind in _KINDS if name.startswith(kind.replace("_", ""))), "")


def _tensors(values: Any) -> Iterator[Tensor]:
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, (list, tuple)):
        for value in cast("Sequence[Any]", values):
            yield from _tensors(value)
