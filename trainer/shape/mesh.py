"""The mesh of devices: its axes, and which rows and which shard of the weights a device has.

Device d of all (hosts in rank order, each host's devices in their order) has the coordinates in d = ((stage * data +
data_index) * fsdp + fsdp_index) * tensor + tensor_index: neighbours share the tensor axis, and the devices of a stage
of the pipeline follow each other. trainer/shape/pipeline.py lists what a stage has.

The context axis is no further factor of the number of devices. It groups those of data x fsdp: `context` devices that
follow each other there, at the same position along tensor, compute the same rows, each some of their tokens. For
weights and gradients they are members of data and fsdp, as all others are. So a mesh with it has the shards, the sums
of gradients and the checkpoints of one without it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainer.config import Config, MeshConfig, ModelConfig
from trainer.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Mesh:
    """Number of devices along each axis; fsdp = 1 is DDP, data = 1 is FSDP, both above 1 is HSDP.

    Attributes:
        data: Replicas of the model.
        fsdp: Devices that shard the weights of a replica.
        tensor: Devices that share each token in products, and between them divide the tokens of each row.
        context: Devices of data x fsdp that divide the tokens of each row among them.
        pipeline: Stages of the model's blocks, each on its own devices.
    """

    data: int = 1
    fsdp: int = 1
    tensor: int = 1
    context: int = 1
    pipeline: int = 1

    @property
    def devices(self) -> int:
        return self.pipeline * self.stage_devices

    @property
    def stage_devices(self) -> int:
        """Number of devices of each stage."""
        return self.data * self.fsdp * self.tensor

    @property
    def shards(self) -> int:
        """Number of equal shares into which the rows of a step are divided."""
        return self.tensor_groups // self.context

    @property
    def tensor_groups(self) -> int:
        """Number of groups of devices of a stage that share their tokens."""
        return self.data * self.fsdp

    def coordinates(self, device: int) -> tuple[int, int, int]:
        """Return (data index, fsdp index, tensor index) of a device within its stage."""
        rest, tensor = divmod(device % self.stage_devices, self.tensor)
        data, fsdp = divmod(rest, self.fsdp)
        return data, fsdp, tensor

    def get_stage(self, device: int) -> int:
        """Return the stage of a device."""
        return device // self.stage_devices

    def get_device(self, stage: int, data: int, fsdp: int, tensor: int) -> int:
        """Return the device with these coordinates."""
        return ((stage * self.data + data) * self.fsdp + fsdp) * self.tensor + tensor

    def get_context_index(self, device: int) -> int:
        """Return which of the devices with the same rows a device is."""
        return device // self.tensor % self.context


@dataclass(frozen=True, slots=True)
class Topology:
    """The devices, as far as the default mesh depends on them.

    Attributes:
        devices: Number of devices of all processes.
        fast_devices: Devices on the fast network of one host or slice (NVLink, ICI, NeuronLink).
        shard_weights: Whether `auto` shards the weights; false where copies fit and the network is slow (the CPU).
    """

    devices: int
    fast_devices: int
    shard_weights: bool


@dataclass(frozen=True, slots=True)
class RowShare:
    """The rows of one process: from `first * batch / total` up to `(first + count) * batch / total` of each step."""

    first: int
    count: int
    total: int

    def rows(self, batch: int) -> tuple[int, int]:
        """Return (first row, number of rows) within a step's batch."""
        each = batch // self.total
        return self.first * each, self.count * each


def resolve_mesh(config: MeshConfig, topology: Topology, model: ModelConfig) -> Mesh:
    """Replace `auto` by sizes.

    Raises:
        ConfigError: The product of the axes is not the number of devices, or an axis does not divide what it has to.
    """
    if topology.devices % config.pipeline:
        raise ConfigError(f"mesh.pipeline={config.pipeline} does not divide the {topology.devices} devices")
    # A stage has the mesh that as many devices would have alone.
    topology = replace(topology, devices=topology.devices // config.pipeline)
    devices, tensor = topology.devices, config.tensor
    of_stage = " of a stage" if config.pipeline > 1 else ""
    if devices % tensor:
        raise ConfigError(f"mesh.tensor={tensor} does not divide the {devices} devices{of_stage}")
    shards = devices // tensor
    data, fsdp = config.data, config.fsdp
    if data and fsdp:
        pass
    elif data:
        fsdp = max(1, shards // data)
    elif fsdp:
        data = max(1, shards // fsdp)
    else:
        fsdp = _default_fsdp(topology, shards, model)
        data = shards // fsdp
    mesh = Mesh(data, fsdp, tensor, config.context, config.pipeline)
    if mesh.stage_devices != devices:
        raise ConfigError(
            f"mesh.data={data} x mesh.fsdp={fsdp} x mesh.tensor={tensor} is {mesh.stage_devices}, "
            f"but there are {devices} devices{of_stage}: leave one of them out to have it computed"
        )
    if mesh.tensor_groups % mesh.context:
        raise ConfigError(
            f"mesh.context={mesh.context} does not divide mesh.data={data} x mesh.fsdp={fsdp}, whose devices it groups"
        )
    _check_divides(mesh, model)
    return mesh


def assign_rows(mesh: Mesh, process: int, processes: int) -> RowShare:
    """Return the rows of one of `processes` equal processes; those that share rows get the same ones.

    Raises:
        ConfigError: Neither of the devices that share rows and the devices per process divides the other, or a process
            has devices of several stages.
    """
    if processes % mesh.pipeline:
        raise ConfigError(f"mesh.pipeline={mesh.pipeline} does not divide the {processes} processes")
    if mesh.pipeline > 1:  # stages have the same rows
        processes //= mesh.pipeline
        return assign_rows(replace(mesh, pipeline=1), process % processes, processes)
    local, sharers = mesh.devices // processes, mesh.tensor * mesh.context
    if local * processes != mesh.devices or (sharers % local and local % sharers):
        axes = f"mesh.tensor={mesh.tensor}" + (f" x mesh.context={mesh.context}" if mesh.context > 1 else "")
        raise ConfigError(f"{axes} does not fit {processes} processes with {local} devices each")
    if local >= sharers:
        count = local // sharers
        return RowShare(process * count, count, mesh.shards)
    return RowShare(process * local // sharers, 1, mesh.shards)


def check_batch(config: Config, mesh: Mesh) -> int:
    """Return the number of rows that a shard computes at a time.

    Raises:
        ConfigError: The batch or the rows do not divide.
    """
    config.check_row(mesh.context, mesh.tensor)
    return config.rows_per_micro_batch(mesh.shards)


def refuse_context(mesh: Mesh, device: str) -> None:
    """Refuse a context axis on devices whose programs do not have it.

    Raises:
        ConfigError: There is such an axis.
    """
    if mesh.context > 1:
        raise ConfigError(
            f"mesh.context={mesh.context}: {device} has no context parallelism: leave it out, or use torch on CPUs and "
            "NVIDIA GPUs, or JAX on these and on TPUs"
        )


def _default_fsdp(topology: Topology, shards: int, model: ModelConfig) -> int:
    if not topology.shard_weights:
        return 1
    # The largest count within the fast network that divides the shards and what fsdp shards.
    fast = min(shards, max(1, topology.fast_devices * shards // topology.devices))
    sizes = (shards, *(size for _, size in _list_sharded_sizes(model)))
    return max(n for n in range(1, fast + 1) if not any(size % n for size in sizes))


def _list_sharded_sizes(model: ModelConfig) -> list[tuple[str, int]]:
    """List what the fsdp axis has to divide, by name."""
    sizes = [("model.dim", model.dim)]
    if model.qk_norm:
        sizes.append(("the width of a head", model.head_dim))
    if model.qkv_bias:  # the width of all queries is a multiple
        sizes.append(("the width of all keys", model.kv_heads * model.head_dim))
    return sizes


def _check_divides(mesh: Mesh, model: ModelConfig) -> None:
    for name, size in _list_sharded_sizes(model):
        if size % mesh.fsdp:
            named = f"{name}={size}" if name.startswith("model.") else f"{name}, {size}"
            raise ConfigError(f"mesh.fsdp={mesh.fsdp} does not divide {named}")
    for name, size in (
        ("model.heads", model.heads),
        ("model.kv_heads", model.kv_heads),
        ("model.experts", model.experts) if model.experts else ("the feed-forward width", model.hidden),
        ("the vocabulary", model.tokens),
    ):
        if size % mesh.tensor:
            raise ConfigError(f"mesh.tensor={mesh.tensor} does not divide {name}, {size}")
