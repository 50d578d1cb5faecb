"""How many devices go along each axis of the mesh, and which rows and which part of the weights a device has.

Device d of all (hosts in rank order, each host's devices in their order) stands at
d = (data_index * fsdp + fsdp_index) * tensor + tensor_index: the tensor axis runs over neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer.config import Config, MeshConfig, ModelConfig
from trainer.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Mesh:
    """data: copies of the model. fsdp: devices that divide a copy's weights. tensor: devices that share each row.

    fsdp = 1: DDP. data = 1: FSDP. Both above 1: HSDP.
    """

    data: int = 1
    fsdp: int = 1
    tensor: int = 1

    @property
    def devices(self) -> int:
        return self.data * self.fsdp * self.tensor

    @property
    def shards(self) -> int:
        """Equal shares into which the rows of a step are divided."""
        return self.data * self.fsdp

    def place(self, device: int) -> tuple[int, int, int]:
        """(data index, fsdp index, tensor index) of a device."""
        rest, tensor = divmod(device, self.tensor)
        data, fsdp = divmod(rest, self.fsdp)
        return data, fsdp, tensor


@dataclass(frozen=True, slots=True)
class Topology:
    """What the defaults depend on. devices: of all processes. fast: devices joined by the fast network of one host
    or slice (NVLink, ICI, NeuronLink). divide: whether `auto` divides the weights: not where copies fit and
    the network is slow (the processor)."""

    devices: int
    fast: int
    divide: bool


@dataclass(frozen=True, slots=True)
class RowShare:
    """Rows `first * batch / of` up to `(first + count) * batch / of` of each step belong to one process."""

    first: int
    count: int
    of: int

    def rows(self, batch: int) -> tuple[int, int]:
        """(first row, number of rows) of a step's batch."""
        each = batch // self.of
        return self.first * each, self.count * each


def resolve(wanted: MeshConfig, topology: Topology, model: ModelConfig) -> Mesh:
    """Fill in what is `auto`. Raises ConfigError when the axes do not multiply to the devices, or do not divide the
    model."""
    devices, tensor = topology.devices, wanted.tensor
    if devices % tensor:
        raise ConfigError(f"mesh.tensor={tensor} does not divide the {devices} devices")
    shards = devices // tensor
    data, fsdp = wanted.data, wanted.fsdp
    if data and fsdp:
        pass
    elif data:
        fsdp = max(1, shards // data)
    elif fsdp:
        data = max(1, shards // fsdp)
    else:
        fsdp = _default_fsdp(topology, shards, model)
        data = shards // fsdp
    mesh = Mesh(data, fsdp, tensor)
    if mesh.devices != devices:
        raise ConfigError(
            f"mesh.data={data} x mesh.fsdp={fsdp} x mesh.tensor={tensor} is {mesh.devices}, "
            f"but there are {devices} devices: leave one of them out, and it is filled in"
        )
    _check_divides(mesh, model)
    return mesh


def row_share(mesh: Mesh, process: int, processes: int) -> RowShare:
    """The rows of one of `processes` equal processes. Processes within a tensor group share the same rows.

    Raises ConfigError when neither divides the other.
    """
    local = mesh.devices // processes
    if local * processes != mesh.devices or (mesh.tensor % local and local % mesh.tensor):
        raise ConfigError(f"mesh.tensor={mesh.tensor} does not fit {processes} processes with {local} devices each")
    if local >= mesh.tensor:
        count = local // mesh.tensor
        return RowShare(process * count, count, mesh.shards)
    return RowShare(process * local // mesh.tensor, 1, mesh.shards)


def check_batch(config: Config, mesh: Mesh) -> int:
    """Rows that a shard takes through the model at once. Raises ConfigError when the batch does not divide."""
    return config.rows_per_micro_batch(mesh.shards)


def _default_fsdp(topology: Topology, shards: int, model: ModelConfig) -> int:
    if not topology.divide:
        return 1
    # The largest count within the fast network that divides both the shards and the model's width.
    fast = min(shards, max(1, topology.fast * shards // topology.devices))
    return max(n for n in range(1, fast + 1) if shards % n == 0 and model.dim % n == 0)


def _check_divides(mesh: Mesh, model: ModelConfig) -> None:
    if model.dim % mesh.fsdp:
        raise ConfigError(f"mesh.fsdp={mesh.fsdp} does not divide model.dim={model.dim}")
    for name, size in (
        ("model.heads", model.heads),
        ("model.kv_heads", model.kv_heads),
        ("the feed-forward width", model.hidden),
        ("the vocabulary", model.tokens),
    ):
        if size % mesh.tensor:
            raise ConfigError(f"mesh.tensor={mesh.tensor} does not divide {name}, {size}")
