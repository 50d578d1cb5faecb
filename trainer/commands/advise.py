"""`python -m trainer advise --hardware JSON key=value ...`: what a run needs on machines before they are rented."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.config import Config
from trainer.errors import ConfigError, Exit
from trainer.options import parse_config
from trainer.shape.advice import Advice, build_advice
from trainer.shape.hardware import Hardware, parse_hardware
from trainer.shape.search import Choice, find_fastest

SUMMARY = "memory, step time and cost of a run on given machines, before they are rented"

HELP = """\
What a run needs and takes on machines that are not here: memory, step time, tokens a day, cost, and what to mind.

  python -m trainer advise model=1b batch=64 --hardware '{"name": "v5e-16", "kind": "tpu", "chip": "v5e",
    "devices": 16, "hosts": 4, "memory_bytes": 17179869184, "peak_flops": 197e12, "price": 19.2}'

--hardware: one object or a list; fields name, kind (tpu, cuda, neuron, cpu) and devices, and if known chip, hosts,
slices, memory_bytes and peak_flops (bf16) of a device, price an hour, network (bytes a second of a host), topology.
Memory and peak of GPUs and TPUs are known by the name of the chip, such as H100 or v5e.
--fastest: with the mesh, micro-batches and recomputation that are fastest and fit; machines on which nothing fits are
left out. --json: for programs. Estimates: nothing is measured, and nothing is touched.
"""
_EXAMPLE = '--hardware \'{"name": "v5e-16", "kind": "tpu", "chip": "v5e", "devices": 16, "hosts": 4}\''


def run(words: Sequence[str]) -> int:
    """Print the advice for each machine; return 0, also where a run would not fit.

    Raises:
        ConfigError: The settings or the description of the machines are wrong.
    """
    given = _read(words)
    config = parse_config(given.settings)
    if given.fastest:
        found = [choice for one in given.hardware if (choice := find_fastest(config, one)) is not None]
    else:
        found = [Choice((), _on(config, one)) for one in given.hardware]
    if given.as_json:
        sys.stdout.write(json.dumps([{**one.advice.as_json(), "settings": one.settings} for one in found]) + "\n")
    else:
        sys.stdout.write("\n\n".join("\n".join(_lines(one)) for one in found) + "\n")
    return Exit.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    hardware: tuple[Hardware, ...]
    settings: list[str]
    as_json: bool
    fastest: bool


def _lines(choice: Choice) -> list[str]:
    return [*choice.advice.lines(), *([f"with {' '.join(choice.settings)}"] if choice.settings else [])]


def _read(words: Sequence[str]) -> _Given:
    hardware: tuple[Hardware, ...] | None = None
    settings: list[str] = []
    flags: set[str] = set()
    rest = iter(words)
    for word in rest:
        if word in ("--json", "--fastest"):
            flags.add(word)
        elif word == "--hardware":
            hardware = parse_hardware(next(rest, ""))
        elif word.startswith("--hardware="):
            hardware = parse_hardware(word.partition("=")[2])
        else:
            settings.append(word)
    if hardware is None:
        raise ConfigError(f"advise: which machines? {_EXAMPLE}")
    return _Given(hardware=hardware, settings=settings, as_json="--json" in flags, fastest="--fastest" in flags)


def _on(config: Config, hardware: Hardware) -> Advice:
    try:
        return build_advice(config, hardware)
    except ConfigError as error:
        raise ConfigError(f"on {hardware.name}: {error}") from None
