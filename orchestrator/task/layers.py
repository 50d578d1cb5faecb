"""Flags, variables and configuration merged with a task file; the origin of every value is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from orchestrator.task.config import KEYS, Config, Origin, Source, SourcedValue
from orchestrator.task.errors import Path
from orchestrator.task.yaml_reader import Document, Value


def _option(flag: str, path: str) -> dict[str, str]:
    return {"flag": flag, "path": path}


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the command line sets; None for nothing. In env and secrets, None takes the shell's value."""

    name: str | None = field(default=None, metadata=_option("--name", "name"))
    infra: str | None = field(default=None, metadata=_option("--infra", "resources.infra"))
    accelerators: str | None = field(default=None, metadata=_option("--accelerators", "resources.accelerators"))
    instance_type: str | None = field(default=None, metadata=_option("--instance-type", "resources.instance_type"))
    num_nodes: int | str | None = field(default=None, metadata=_option("--num-nodes", "num_nodes"))
    use_spot: bool | None = field(default=None, metadata=_option("--use-spot", "resources.use_spot"))
    disk_size: int | None = field(default=None, metadata=_option("--disk-size", "resources.disk_size"))
    image_id: str | None = field(default=None, metadata=_option("--image-id", "resources.image_id"))
    network_tier: str | None = field(default=None, metadata=_option("--network-tier", "resources.network_tier"))
    workdir: str | None = field(default=None, metadata=_option("--workdir", "workdir"))
    run: str | None = field(default=None, metadata=_option("command", "run"))
    bucket: str | None = field(default=None, metadata=_option("--bucket", "checkpoint.bucket"))
    checkpoint_every: int | None = field(default=None, metadata=_option("--checkpoint-every", "checkpoint.every"))
    backend: str | None = field(default=None, metadata=_option("--backend", "train.backend"))
    smoke: bool | None = field(default=None, metadata=_option("--smoke", "train.smoke"))
    allow_misfit: bool | None = field(default=None, metadata=_option("--allow-misfit", "train.allow_misfit"))
    max_preemptions: int | None = field(default=None, metadata=_option("--max-preemptions", "recovery.max_preemptions"))
    max_failures: int | None = field(default=None, metadata=_option("--max-failures", "recovery.max_failures"))
    max_hours: float | None = field(default=None, metadata=_option("--max-hours", "limits.max_hours"))
    idle_minutes: int | None = field(default=None, metadata=_option("--idle-minutes", "limits.idle_minutes"))
    max_cost: float | None = field(default=None, metadata=_option("--max-cost", "limits.max_cost"))
    max_hourly_cost: float | None = field(
        default=None, metadata=_option("--max-hourly-cost", "resources.max_hourly_cost")
    )
    budget: float | None = field(default=None, metadata=_option("--budget", "resources.auto.budget"))
    by: str | None = field(default=None, metadata=_option("--by", "resources.auto.by"))
    only: str | None = field(default=None, metadata=_option("--only", "resources.auto.only"))
    tokens: str | None = field(default=None, metadata=_option("tokens", "resources.auto.tokens"))
    env: tuple[tuple[str, str | None], ...] = ()
    secrets: tuple[tuple[str, str | None], ...] = field(default=(), repr=False)
    train_args: tuple[tuple[str, str], ...] = ()
    by_argument: str = ""  # the field that the argument WHERE of `orch train` gave, and no option


@dataclass(frozen=True, slots=True)
class LayeredTask:
    """A document under the flags and variables, and over the configuration.

    Attributes:
        data: The document with stronger values put in and defaults filled in.
        origins: Where those values were written.
        chains: For every path that some layer sets, its values, the one in force first.
    """

    data: dict[str, Value]
    origins: Mapping[Path, Origin]
    chains: Mapping[str, tuple[SourcedValue, ...]]


def merge_layers(document: Document, file: str, flags: Overrides, config: Config | None) -> LayeredTask:
    """Return the document with all layers merged; it need not be valid yet."""
    data = _copy(document.data)
    root = data if isinstance(data, dict) else {}
    origins: dict[Path, Origin] = {}
    chains: dict[str, tuple[SourcedValue, ...]] = {}
    for dotted in _paths():
        path = tuple(dotted.split("."))
        chain = _chain(root, path, document, file, flags, config)
        if not chain:
            continue
        chains[dotted] = tuple(chain)
        winner = chain[0]
        if winner.origin.source in (Source.FLAG, Source.ENVIRONMENT):
            _give_way(root, path, winner)
            _put(root, path, winner, origins)
        elif winner.origin.source is Source.CONFIG and not _said(root, path):
            _put(root, path, winner, origins)
    _lay_maps(root, flags, origins)
    return LayeredTask(root, origins, chains)


def _paths() -> list[str]:
    """Return every path that a flag or the configuration can set; `infra` before what it may displace."""
    of_flags = [str(option.metadata["path"]) for option in fields(Overrides) if "path" in option.metadata]
    return list(dict.fromkeys([*of_flags, *(key.task_path for key in KEYS if key.task_path)]))


def _chain(
    root: dict[str, Value],
    path: tuple[str, ...],
    document: Document,
    file: str,
    flags: Overrides,
    config: Config | None,
) -> list[SourcedValue]:
    dotted = ".".join(path)
    chain: list[SourcedValue] = []
    for option in fields(Overrides):
        value: object = getattr(flags, option.name)
        if option.metadata.get("path") == dotted and value is not None:
            flag = str(value) if option.name == flags.by_argument else option.metadata["flag"]
            chain.append(SourcedValue(Origin(Source.FLAG, flag), value))
    keys = [key for key in KEYS if key.task_path == dotted]
    below = [valued for key in keys for valued in (config.explain(key.full_name) if config else ())]
    chain += [valued for valued in below if valued.origin.source is Source.ENVIRONMENT]
    written = _get(root, path) or _older_infra(root, dotted)
    if written is not None:
        chain.append(SourcedValue(Origin(Source.TASK, file, document.line_of(path)), written))
    chain += [valued for valued in below if valued.origin.source is not Source.ENVIRONMENT]
    if not config:
        chain += [SourcedValue(Origin(Source.BUILT_IN), key.built_in) for key in keys if key.built_in is not None]
    return chain


def _older_infra(root: dict[str, Value], dotted: str) -> str | None:
    """Return `cloud`, `region` and `zone` as one value, for the explanation of `infra`."""
    if dotted != "resources.infra":
        return None
    parts = [_get(root, tuple(other.split("."))) for other in _rivals(dotted)]
    return "/".join(str(part or "*") for part in parts) if any(parts) else None


# Keys that say the same thing in different ways: a stronger one displaces the weaker others.
_GROUPS: tuple[tuple[str, ...], ...] = (
    ("resources.infra", "resources.cloud", "resources.region", "resources.zone"),
    ("resources.accelerators", "resources.instance_type", "resources.gpus"),
    ("run", "train"),
)


def _rivals(dotted: str) -> tuple[str, ...]:
    group = next((group for group in _GROUPS if dotted in group), ())
    return tuple(other for other in group if other != dotted)


def _said(root: dict[str, Value], path: tuple[str, ...]) -> bool:
    """Return whether the file itself sets this, directly or by a rival key."""
    dotted = ".".join(path)
    return any(_get(root, tuple(other.split("."))) is not None for other in (dotted, *_rivals(dotted)))


def _give_way(root: dict[str, Value], path: tuple[str, ...], winner: SourcedValue) -> None:
    """Remove what a stronger value makes void: rival keys, and the same keys inside candidates."""
    dotted = ".".join(path)
    removed = [tuple(other.split(".")) for other in _rivals(dotted)]
    shape = str(winner.value).partition(":")[2] if dotted == "resources.infra" else ""
    if shape:  # local:4 and local:v5litepod-16 say which machines, too
        removed += [("resources", name) for name in ("accelerators", "instance_type", "gpus")]
        if shape.isdigit():
            removed.append(("num_nodes",))
    for other in removed:
        _remove(root, other)
    resources = root.get("resources")
    if path[0] != "resources" or not isinstance(resources, dict):
        return
    names = {path[-1], *(other[-1] for other in removed)}
    for kind in ("any_of", "ordered"):
        entries = resources.get(kind)
        for index in range(len(entries)) if isinstance(entries, list) else ():
            for name in names:
                _remove(root, ("resources", kind, index, name))


def _put(root: dict[str, Value], path: tuple[str, ...], winner: SourcedValue, origins: dict[Path, Origin]) -> None:
    section = root
    for part in path[:-1]:
        inner = section.get(part)
        if inner is None:
            inner = section[part] = {}
        if not isinstance(inner, dict):
            return  # the file has something else here; the check says so
        section = inner
    value = winner.value
    section[path[-1]] = value if isinstance(value, bool | int | float | str) else None
    origins[path] = winner.origin


def _lay_maps(root: dict[str, Value], flags: Overrides, origins: dict[Path, Origin]) -> None:
    """Merge --env, --secret and settings of the trainer, one entry each."""
    maps: tuple[tuple[tuple[str, ...], str, tuple[tuple[str, str | None], ...]], ...] = (
        (("envs",), "--env", flags.env),
        (("secrets",), "--secret", flags.secrets),
        (("train", "args"), "setting", flags.train_args),
    )
    for path, flag, entries in maps:
        for name, value in entries:
            if "." in name:  # the file may have written model.dim as {model: {dim: ...}}
                _remove(root, (*path, *name.split(".")))
            _put(root, (*path, name), SourcedValue(Origin(Source.FLAG, f"{flag} {name}"), value), origins)


def _get(root: dict[str, Value], path: Path) -> Value:
    value: Value = root
    for part in path:
        value = _step(value, part)
    return value


def _step(value: Value, part: str | int) -> Value:
    if isinstance(value, dict) and isinstance(part, str):
        return value.get(part)
    return value[part] if isinstance(value, list) and isinstance(part, int) else None


def _remove(root: dict[str, Value], path: Path) -> None:
    section, name = _get(root, path[:-1]), path[-1]
    if isinstance(section, dict) and isinstance(name, str):
        section.pop(name, None)


def _copy(value: Value) -> Value:
    if isinstance(value, dict):
        return {name: _copy(item) for name, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value
