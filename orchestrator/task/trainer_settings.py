"""Settings of the bundled trainer, checked where they are written: before anything is made, and without the trainer.

data/trainer.json is what `python -m trainer keys` prints; a test compares the two.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from orchestrator.task.errors import Issue, Path, did_you_mean

if TYPE_CHECKING:
    from orchestrator.task.yaml_reader import Value  # `orch offers` reads no YAML

FILE = FilePath(__file__).parent / "data" / "trainer.json"
MODEL = "model"
_PLACE = "checkpoint.uri"  # orch makes it from the task's bucket and the run's id
_EXPERT_STEP = 8  # trainer/shape/limits.py
_LIMIT = 1 << 63  # trainer/options.py
_LIST = "python -m trainer --help   lists the settings"
_TRUE = ("true", "1", "yes")
_FLAGS = (*_TRUE, "false", "0", "no")
# What others call it, as in trainer/options.py.
_ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {
        "gpu": "cuda",
        "trainium": "neuron",
        "pytorch": "torch",
        "float32": "fp32",
        "bfloat16": "bf16",
        "float16": "bf16",
        "fp16": "bf16",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSetting:
    """One setting.

    Attributes:
        kind: bool, int, float, str or choice.
        least: Smallest value, allowed itself; None for no limit.
        most: Largest value, allowed itself; None for no limit.
        auto: Whether it may be `auto`.
        doc: Its help.
    """

    name: str
    kind: str
    choices: tuple[str, ...]
    default: str
    least: float | None
    most: float | None
    auto: bool
    doc: str = ""

    def fault(self, text: str) -> tuple[str, str]:
        """Return what is wrong with a value and what may be meant; ("", "") when it is right."""
        if self.auto and text == "auto":
            return "", ""
        if self.kind == "choice":
            other = _ELSEWHERE.get(text.lower(), "")
            near = other if other in self.choices else did_you_mean(text, self.choices)
            meant = f"{self.name}={near}" if near else ""
            return ("", "") if text in self.choices else (f"not one of {', '.join(self.choices)}", meant)
        if self.kind == "bool":
            return ("", "") if text.lower() in _FLAGS else ("not true or false", "")
        return (self._number(text), "") if self.kind in ("int", "float") else ("", "")

    def is_default(self, text: str) -> bool:
        """Whether a right value is the default in other letters or digits."""
        if self.kind == "bool":
            return (text.lower() in _TRUE) == (self.default.lower() in _TRUE)
        if self.kind in ("int", "float") and "auto" not in (text, self.default):
            return float(text) == float(self.default)
        return text == self.default

    def _number(self, text: str) -> str:
        what = "a whole number" if self.kind == "int" else "a number"
        try:
            value = int(text) if self.kind == "int" else float(text)
        except ValueError:
            return f"not {what}"
        if isinstance(value, int) and not -_LIMIT <= value < _LIMIT:
            return "has more than 64 bits"
        if not math.isfinite(value):
            return f"not {what}"
        if self.least is not None and value < self.least:
            return f"must be at least {self.least:g}"
        return f"must be at most {self.most:g}" if self.most is not None and value > self.most else ""


@dataclass(frozen=True, slots=True)
class TrainerSettings:
    """All that the trainer takes. aliases: short name -> key. presets: what `model=NAME` stands for."""

    keys: Mapping[str, TrainerSetting]
    aliases: Mapping[str, str]
    presets: Mapping[str, Mapping[str, str]]


@cache
def load_settings() -> TrainerSettings:
    """As this orch was made with them."""
    table: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    keys = {row["name"]: _key(row) for row in table["keys"]}
    return TrainerSettings(
        MappingProxyType(keys), MappingProxyType(table["aliases"]), MappingProxyType(table["presets"])
    )


def find_setting_problems(args: tuple[tuple[str, str], ...], document: Value) -> Iterator[Issue]:
    """Yield an issue for every setting that is unknown or whose value is not allowed.

    Args:
        args: Settings, keys dotted.
        document: The task file, for the place of each setting.
    """
    train = document.get("train") if isinstance(document, dict) else None
    written = train.get("args") if isinstance(train, dict) else None
    known = load_settings()
    wrong = False
    for name, text in args:
        issue = _check_one(known, name, text, _path(name, written))
        if issue is not None:
            wrong = True
            yield issue
    if not wrong:
        yield from _check_adapters(dict(args), written)
        yield from _check_shape(known, dict(args), written)


def note_local_data(args: tuple[tuple[str, str], ...], mounts: Iterable[str]) -> Iterator[str]:
    """Return the problem with data that nothing brings to rented hosts; `mounts` are the folders on them."""
    folders = tuple(mounts)
    for text in list_data_sources(args):
        inside = any(text == mount or text.startswith((f"{mount}/", f"{mount}:")) for mount in folders)
        if text.startswith(("/", "~", "file://")) and not inside:
            yield f"data={text} is looked for on the rented hosts, and nothing here brings it there: data=s3:// or gs://"


def list_data_sources(args: Iterable[tuple[str, str]]) -> list[str]:
    """Return the places of the data that the settings name: several with weights, which commas divide."""
    aliases = load_settings().aliases
    given = {aliases.get(name, name): text for name, text in args}
    data = given.get("data.source", "")
    return [place.strip() for place in data.split(",")] if given.get("data.weights") else [data]


def _key(row: Mapping[str, Any]) -> TrainerSetting:
    default = "auto" if row["auto"] and not row["default"] else str(row["default"])
    choices = tuple(row["choices"] or ())
    return TrainerSetting(
        name=row["name"],
        kind=row["kind"],
        choices=choices,
        default=default,
        least=row["least"],
        most=row["most"],
        auto=row["auto"],
        doc=row["doc"],
    )


def _check_one(known: TrainerSettings, name: str, text: str, path: Path) -> Issue | None:
    if name == MODEL:
        return _check_model(known, text, path)
    key = known.keys.get(known.aliases.get(name, name))
    if key is None:
        near = _near(known, name)
        # Hints are in `what`: of several problems nothing else is shown.
        return Issue(path=path, what=f"the trainer has no setting `{name}`{_hint(near)}", why="", next_step=_LIST)
    if key.name == _PLACE:
        why = "the bucket of the task decides where checkpoints go"
        return Issue(
            path=path,
            what=f"{_PLACE} is not a setting here",
            why=why,
            next_step="write checkpoint.bucket, or --bucket URI",
        )
    what, near = key.fault(text)
    return Issue(path=path, what=f"`{name}={text}`: {what}{_hint(near)}", why="", next_step=_LIST) if what else None


def _hint(near: str) -> str:
    return f"; did you mean {near}?" if near else ""


def _check_model(known: TrainerSettings, text: str, path: Path) -> Issue | None:
    if text in known.presets:
        return None
    begins = [name for name in known.presets if name.startswith(text.lower()) or text.lower().startswith(name)]
    near = begins[0] if begins and text else did_you_mean(text, list(known.presets))
    what = f"`model={text}`: there is no such model{_hint(f'model={near}' if near else '')}"
    return Issue(path=path, what=what, why=f"there are {', '.join(known.presets)}")


def _near(known: TrainerSettings, name: str) -> str:
    names = [*known.keys, *known.aliases, MODEL]
    tails = [one for one in known.keys if one.rsplit(".", 1)[-1] == name.rsplit(".", 1)[-1].lower()]
    # By its last part too: `optim.learning` has nothing near, `optimizer.lr` has optim.lr.
    return tails[0] if tails else did_you_mean(name, names)


def _check_adapters(given: Mapping[str, str], written: Value) -> Iterator[Issue]:
    """Check that settings of adapters come with their rank: without it the run would train all weights."""
    without = [name for name in given if name.startswith("lora.") and "lora.rank" not in given]
    if without:
        yield Issue(
            path=_path(without[0], written),
            what=f"{without[0]} without lora.rank",
            why="all weights would be trained",
            next_step=f"add lora.rank=16, or leave {without[0]} out",
        )


def _check_shape(known: TrainerSettings, given: Mapping[str, str], written: Value) -> Iterator[Issue]:
    """Check the arithmetic that the trainer would refuse on the hosts."""
    values = {**known.presets.get(given.get(MODEL, ""), {}), **given}
    yield from _check_row(known, values, written)

    def whole(name: str) -> int:
        text = values.get(f"model.{name}", known.keys[f"model.{name}"].default)
        return 0 if text == "auto" else int(text)

    def blame(*names: str) -> Path:
        mine = [f"model.{name}" for name in names if f"model.{name}" in given]
        return _path(mine[0] if mine else MODEL, written)

    dim, heads, kv_heads, head = whole("dim"), whole("heads"), whole("kv_heads"), whole("head")
    if not head and dim % heads:
        what = f"model.dim={dim} is not a multiple of model.heads={heads}"
        yield Issue(
            path=blame("dim", "heads"),
            what=what,
            why="",
            next_step=f"write model.dim={-(-dim // heads) * heads}, or model.head",
        )
    elif (head or dim // heads) % 2:
        what = f"a head is {head or dim // heads} wide, but must be even"
        yield Issue(
            path=blame("head", "dim", "heads"),
            what=what,
            why="its parts are rotated in pairs",
            next_step="change model.heads",
        )
    if heads % kv_heads:
        what = f"model.heads={heads} is not a multiple of model.kv_heads={kv_heads}"
        yield Issue(path=blame("kv_heads", "heads"), what=what, why="", next_step="change one of them")
    low, high = (values.get(name, known.keys[name].default) for name in ("model.rope_low_freq", "model.rope_high_freq"))
    scaling = values.get("model.rope_scaling", known.keys["model.rope_scaling"].default)
    if scaling != "none" and float(high) <= float(low):
        what = f"model.rope_high_freq={high} is not above model.rope_low_freq={low}"
        yield Issue(path=blame("rope_high_freq", "rope_low_freq"), what=what, why="", next_step="change one of them")
    if whole("experts"):
        yield from _check_experts(known, values, written)
    else:
        yield from _find_idle_expert_settings(known, values, written)


def _check_experts(known: TrainerSettings, values: Mapping[str, str], written: Value) -> Iterator[Issue]:
    """Check what the trainer refuses of a model with experts."""

    def text(name: str) -> str:
        return values.get(name, known.keys[name].default)

    def whole(name: str) -> int:
        return 0 if text(f"model.{name}") == "auto" else int(text(f"model.{name}"))

    def issue(name: str, what: str, next_step: str) -> Issue:
        return Issue(path=_path(name, written), what=what, why="the model has experts", next_step=next_step)

    experts, chosen, dim = whole("experts"), whole("experts_per_token"), whole("dim")
    if chosen > experts:
        what = f"model.experts_per_token={chosen} is more than model.experts={experts}"
        yield issue("model.experts_per_token", what, f"write model.experts_per_token={experts}, or fewer")
    width = whole("expert_hidden") or whole("ffn")  # 0: made of dim, and a multiple
    for name, size in (("dim", dim), ("expert_hidden", width)):
        if size % _EXPERT_STEP:
            what = f"model.{name}={size} is not a multiple of {_EXPERT_STEP}"
            yield issue(f"model.{name}", what, f"write model.{name}={-(-size // _EXPERT_STEP) * _EXPERT_STEP}")
    if text("optim.kind") != "adamw":
        what = f"optim.kind={text('optim.kind')} does not update experts"
        yield issue("optim.kind", what, "write optim.kind=adamw")
    targets = text("lora.targets")
    named = {word.strip() for word in targets.split(",")}
    if int(text("lora.rank")) and (targets == "all" or named & {"gate", "up", "down"}):
        yield issue("lora.targets", f"lora.targets={targets}: experts have no adapters", "write lora.targets=attention")


def _find_idle_expert_settings(known: TrainerSettings, values: Mapping[str, str], written: Value) -> Iterator[Issue]:
    for name in ("model.experts_per_token", "model.expert_hidden", "model.normalize_experts", "model.router_loss"):
        text = values.get(name)
        if text is not None and not known.keys[name].is_default(text):
            what = f"{name}={text} without model.experts: the model would be dense"
            yield Issue(path=_path(name, written), what=what, why="", next_step="add model.experts=8, or leave it out")


def _check_row(known: TrainerSettings, values: Mapping[str, str], written: Value) -> Iterator[Issue]:
    names = ("seq_len", "mesh.context", "mesh.tensor")
    length, context, tensor = (int(values.get(name, known.keys[name].default)) for name in names)
    parts = 2 * context if context > 1 else 1
    step = math.lcm(parts, context * tensor)
    axis, what = "", ""
    if length % parts:
        axis = "mesh.context"
        what = f"seq_len={length} does not divide into {parts} parts, two for each device of mesh.context={context}"
    elif length % step:
        axis = "mesh.tensor"
        what = f"mesh.tensor={tensor} does not divide the {length // context} tokens of a row on a device"
    if axis:
        next_step = f"write seq_len={-(-length // step) * step}, or another {axis}"
        yield Issue(path=_path(axis, written), what=what, why="", next_step=next_step)


def _path(name: str, written: Value) -> Path:
    """Where a setting stands: nested when the file wrote it so."""
    head, dot, tail = name.partition(".")
    inner = written.get(head) if isinstance(written, dict) else None
    nested = bool(dot) and isinstance(inner, dict) and tail in inner
    return ("train", "args", head, tail) if nested else ("train", "args", name)
