"""The step of a large mesh, rehearsed in one process, compared with the real engine and torch's own tools."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch_cases import SMALL, counted_collectives
from torch_worlds import in_world

from trainer.config import Config, DataConfig, ModelConfig, RematLevel
from trainer.errors import ConfigError
from trainer.shape.architecture import count_parameters
from trainer.shape.memory import estimate_memory
from trainer.shape.mesh import Mesh
from trainer.shape.timing import Traffic
from trainer.torch_engine.rehearsal import rehearse_step

PLAIN = dataclasses.replace(SMALL, optim=dataclasses.replace(SMALL.optim, ema=0.0))


def test_a_device_has_its_share_of_the_bytes() -> None:
    whole = 4 * count_parameters(SMALL.model)
    config = dataclasses.replace(SMALL, batch=64)
    for mesh, share in ((Mesh(), 1), (Mesh(data=8), 1), (Mesh(fsdp=8), 8), (Mesh(2, 4), 4)):
        found = rehearse_step(config, mesh, mesh.devices - 1)
        assert found.weights == found.gradients == found.averages == whole // share
        assert found.optimizer == 2 * whole // share
        assert found.peak > found.weights + found.optimizer + found.averages


def test_muon_keeps_the_estimated_bytes_and_moves_each_matrix_twice() -> None:
    config = dataclasses.replace(SMALL, batch=64, optim=dataclasses.replace(SMALL.optim, kind="muon"))
    for mesh in (Mesh(), Mesh(2, 4), Mesh(1, 2, 4)):
        found = rehearse_step(config, mesh, mesh.devices - 1)
        assert found.optimizer == estimate_memory(config, mesh, "torch").optimizer
    (exchange,) = [one for one in found.collectives if one.kind == "all_to_all"]
    matrices = 7 * SMALL.model.layers
    assert exchange.count == 2 * -(-matrices // mesh.devices)


@pytest.mark.promise("P39")
def test_the_collectives_equal_those_of_real_processes() -> None:
    """The operations of two real ranks are counted by torch's own tool."""
    meshes = [Mesh(1, 2), Mesh(1, 1, 2), Mesh(1, 2, 1, 2)]
    for rank, found in enumerate(in_world(2, counted_collectives, PLAIN, meshes)):
        for mesh, real in zip(meshes, found, strict=True):
            rehearsed = {c.kind: c.count for c in rehearse_step(PLAIN, mesh, rank).collectives}
            # That tool does not see what the operations of ring attention send: keys, keys again, and their gradients.
            sent = rehearsed.pop("all_to_all", 0)
            assert sent == PLAIN.model.layers * ((mesh.context - 1) * 2 + mesh.context) * (mesh.context > 1)
            assert rehearsed == real
            assert sum(rehearsed.values()) > 3


def test_first_and_last_device_of_a_large_mesh_have_the_same_collectives() -> None:
    config = dataclasses.replace(SMALL, batch=64, dtype="bf16", remat="full")
    mesh = Mesh(2, 8, 4)
    first, last = rehearse_step(config, mesh, 0), rehearse_step(config, mesh, mesh.devices - 1)
    assert first.collectives == last.collectives
    assert {c.kind for c in first.collectives} == {"all_gather", "reduce_scatter", "all_reduce"}
    assert not torch.distributed.is_initialized()


@pytest.mark.promise("P39")
def test_the_peak_equals_that_of_torchs_memory_tracker() -> None:
    from trainer.torch_engine import rehearsal
    from trainer.torch_engine.build import assemble_model, build_sharded_model

    accelerator = rehearsal.FakeAccelerator()
    parts = build_sharded_model(PLAIN, accelerator, Mesh())
    with FakeTensorMode(allow_non_fake_inputs=True), MemTracker() as tracker:
        build = assemble_model(PLAIN, accelerator, Mesh(), parts, 0)
        rows = torch.zeros((PLAIN.batch, PLAIN.seq_len + 1), dtype=torch.int64)
        build.step(rows, 1e-3, False, 0)
        theirs = max(found["Total"] for found in tracker.get_tracker_snapshot("peak").values())
    assert rehearse_step(PLAIN, Mesh(), 0).peak == pytest.approx(theirs, rel=0.01)


def test_recomputation_and_sharding_save_memory() -> None:
    config = Config(batch=64, seq_len=256, model=dataclasses.replace(SMALL.model, layers=3))
    plain = rehearse_step(config, Mesh(1, 8), 0).peak
    assert rehearse_step(dataclasses.replace(config, remat="full"), Mesh(1, 8), 0).peak < 0.7 * plain
    assert rehearse_step(config, Mesh(1, 16), 0).peak < plain


def test_no_memory_is_counted_for_the_whole_tensors_whose_shapes_dtensor_computes() -> None:
    """A device of eight has an eighth of the widest results; the rehearsed step has no more than the plan."""
    model = ModelConfig(dim=64, layers=2, heads=8, kv_heads=8, ffn=2048, vocab=512)
    config = Config(batch=4, seq_len=2048, remat="full", device="cpu", dtype="bf16", model=model)
    mesh = Mesh(tensor=8)
    assert rehearse_step(config, mesh).peak == pytest.approx(estimate_memory(config, mesh, "torch").total, rel=0.1)


@pytest.mark.parametrize(("documents", "level"), [(False, "none"), (True, "selective"), (False, "full")])
def test_what_a_step_needs_falls_with_the_devices_that_divide_a_long_row(documents: bool, level: RematLevel) -> None:
    """A row on one device, on 2, and on 4; the plan has the same bytes, and those that travel."""
    model = ModelConfig(dim=256, layers=2, heads=4, kv_heads=2, vocab=1024)
    data = DataConfig(document_mask=documents)
    config = Config(batch=1, seq_len=4096, remat=level, device="cpu", dtype="bf16", data=data, model=model)
    needs: list[int] = []
    for mesh in (Mesh(), Mesh(1, 2, 1, 2), Mesh(1, 4, 1, 4)):
        found = rehearse_step(config, mesh)
        needs.append(found.peak - found.weights - found.gradients - found.optimizer)
        assert found.peak == pytest.approx(estimate_memory(config, mesh, "torch").total, rel=0.12)
        sent = sum(one.bytes for one in found.collectives if one.kind == "all_to_all")
        assert Traffic.of(config, mesh).context == pytest.approx(sent, rel=0.01)
    assert needs[2] < 0.6 * needs[1]
    if documents:  # the ring holds scores of chunks, which one device with a mask does not
        assert needs[2] < 0.55 * needs[0]
        return
    # Gathered weights stay, which are much where blocks are recomputed.
    assert needs[1] < 0.75 * needs[0]
    assert needs[2] < (0.28 if level == "none" else 0.38) * needs[0]


def test_a_batch_that_does_not_divide_is_refused() -> None:
    with pytest.raises(ConfigError, match="batch=8"):
        rehearse_step(SMALL, Mesh(16), 0)
