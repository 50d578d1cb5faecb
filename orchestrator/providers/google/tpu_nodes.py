"""Tasks for TPU Nodes, the architecture before TPU VMs: recognised, refused, and rewritten for a TPU VM.

A TPU Node was driven by a second machine, named by `instance_type`, and had runtime versions like 2.12.0 (SkyPilot
documentation, "Cloud TPU", 2023). A TPU VM needs neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from orchestrator.catalog import tpu
from orchestrator.errors import UserError
from orchestrator.task.errors import OutdatedTaskError, Path, Problem, TaskError, TaskRewrite
from orchestrator.task.yaml_reader import Document, Value, read_documents

_RUNTIMES_OF_VMS = ("tpu-", "v2-")  # every runtime version of TPU VMs begins so; Cloud TPU documentation, 2025
_DRIVER = re.compile(r"[a-z][a-z0-9]{1,3}-(?:standard|highmem|highcpu|custom|ultramem|megamem)-[0-9-]+")
_REMOTE = re.compile(r"TPU_NAME|KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS|grpc://")

_Pair: TypeAlias = "tuple[ScalarNode, Node]"


class TpuNodeError(OutdatedTaskError):
    """The task requests a TPU Node."""

    code = "tpu-node"


def refuse_tpu_nodes(documents: Sequence[Document], text: str, file: str) -> None:
    """Refuse a task that requests a TPU Node.

    Raises:
        TpuNodeError: As the only problem, because its rewrite removes the others.
    """
    paths = [(document, path) for document in documents for path in _node_requests(document.data)]
    if not paths:
        return
    document, path = paths[0]
    rewriting = _rewriting(text, documents, file)
    why = f"Google ended TPU Nodes on {tpu.NODES_ENDED}; on a TPU VM the program runs beside the chips"
    step = f"orch launch {file} --write   saves it for TPU VMs" if rewriting else "remove tpu_vm and tpu_name"
    what = "`tpu_vm: false` asks for a TPU Node"
    raise TpuNodeError(Problem(file=file, line=document.line_of(path), what=what, why=why, next_step=step), rewriting)


def _node_requests(data: Value) -> Iterator[Path]:
    """Paths of `tpu_vm: false` in resources and its candidates."""
    resources = data.get("resources") if isinstance(data, dict) else None
    places: list[tuple[Path, Value]] = [(("resources",), resources)]
    for kind in ("any_of", "ordered"):
        entries = resources.get(kind) if isinstance(resources, dict) else None
        listed = entries if isinstance(entries, list) else []
        places += [(("resources", kind, index), entry) for index, entry in enumerate(listed)]
    for path, place in places:
        args = place.get("accelerator_args") if isinstance(place, dict) else None
        if isinstance(args, dict) and args.get("tpu_vm") is False:
            yield (*path, "accelerator_args", "tpu_vm")


def _rewriting(text: str, documents: Sequence[Document], file: str) -> TaskRewrite | None:
    """Only that is changed which a TPU VM needs otherwise. None when that is not certain."""
    edits: list[_Edit] = []
    try:
        roots = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError):  # stricter than the reader's own parser
        return None
    for root in roots:
        resources = _child(root, "resources")
        outer = _accelerator(resources)
        for place in (resources, *_items(_child(resources, "any_of")), *_items(_child(resources, "ordered"))):
            if isinstance(place, MappingNode):
                edits += _of_place(text, place, _accelerator(place) or outer)
    made = _apply(text, edits)
    remarks = [
        f"{edit.text} holds no TensorFlow, the older runtime did: install it in setup" for edit in edits if edit.text
    ]
    remarks += [
        f"line {number}: a TPU VM has its chips in itself; TensorFlow names them `local`, JAX and PyTorch need no name"
        for number, line in enumerate(made.splitlines(), 1)
        if _REMOTE.search(line)
    ]
    return (
        TaskRewrite(path=file, before=text, after=made, purpose="for TPU VMs", remarks=tuple(dict.fromkeys(remarks)))
        if _means_the_same(made, documents)
        else None
    )


@dataclass(frozen=True, slots=True)
class _Edit:
    """The characters from start to end become `text`."""

    start: int
    end: int
    text: str = ""


def _of_place(text: str, place: MappingNode, accelerator: str) -> list[_Edit]:
    """Edits of one mapping that may hold accelerator_args and instance_type."""
    args = _child(place, "accelerator_args")
    if not isinstance(args, MappingNode) or not _is_false(_child(args, "tpu_vm")):
        return []
    removed = {"tpu_vm", "tpu_name"}
    edits: list[_Edit] = []
    runtime = _child(args, "runtime_version")
    if isinstance(runtime, ScalarNode) and not runtime.value.startswith(_RUNTIMES_OF_VMS):
        own = _runtime_version(accelerator)
        if own:
            edits.append(_Edit(_start(runtime), _end(runtime), own))
        else:
            removed.add("runtime_version")
    names = {key.value for key, _ in _pairs(args)}
    if names <= removed:
        edits = _removals(text, place, {"accelerator_args"} | _driver(place))
    else:
        edits += _removals(text, args, removed) + _removals(text, place, _driver(place))
    return edits


def _driver(place: MappingNode) -> set[str]:
    """`instance_type` when it names the machine that drove the node."""
    value = _child(place, "instance_type")
    return {"instance_type"} if isinstance(value, ScalarNode) and _DRIVER.fullmatch(value.value) else set()


def _runtime_version(accelerator: str) -> str:
    try:
        found = tpu.find_slice(accelerator.partition(":")[0])
    except UserError:
        return ""
    return found.runtime_version if found is not None else ""


def _removals(text: str, mapping: MappingNode, names: set[str]) -> list[_Edit]:
    pairs = _pairs(mapping)
    return [
        _flow_removal(pairs, index, names) if mapping.flow_style else _block_removal(text, pairs, index)
        for index, (key, _) in enumerate(pairs)
        if key.value in names
    ]


def _block_removal(text: str, pairs: list[_Pair], index: int) -> _Edit:
    """Whole lines with what stands behind them; after a list's dash only up to the next key."""
    key, value = pairs[index]
    line = text.rfind("\n", 0, _start(key)) + 1
    if text[line : _start(key)].strip() and index + 1 < len(pairs):
        return _Edit(_start(key), _start(pairs[index + 1][0]))
    end = text.find("\n", max(_end(value), _end(key)))
    return _Edit(line, len(text) if end < 0 else end + 1)


def _flow_removal(pairs: list[_Pair], index: int, removed: set[str]) -> _Edit:
    """Return the pair with one comma: the one behind it, or the one before when nothing that stays follows."""
    following = next((key for key, _ in pairs[index + 1 :] if key.value not in removed), None)
    if following is not None:
        return _Edit(_start(pairs[index][0]), _start(following))
    before = [value for key, value in pairs[:index] if key.value not in removed]
    return _Edit(_end(before[-1]) if before else _start(pairs[0][0]), _end(pairs[-1][1]))


def _apply(text: str, edits: list[_Edit]) -> str:
    made, reached = "", 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        made += text[reached : edit.start] + edit.text  # neighbours in a flow mapping share what is between them
        reached = max(reached, edit.end)
    return made + text[reached:]


def _means_the_same(made: str, before: Sequence[Document]) -> bool:
    """Whether the new text reads as the old one without what belongs to TPU Nodes. Aliases may make it otherwise."""
    try:
        after = read_documents(made, "")
    except TaskError:
        return False
    pairs = list(zip(before, after, strict=False))
    same = len(before) == len(after) and all(_plain(old.data) == _plain(new.data) for old, new in pairs)
    return same and not any(list(_node_requests(document.data)) for document in after)


def _plain(value: Value) -> Value:
    """Return the value without the keys that the rewriting may touch."""
    touched = ("tpu_vm", "tpu_name", "runtime_version", "instance_type")
    if isinstance(value, dict):
        kept = {key: _plain(item) for key, item in value.items() if key not in touched}
        return {key: item for key, item in kept.items() if not (key == "accelerator_args" and not item)}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _child(node: Node | None, name: str) -> Node | None:
    return next((value for key, value in _pairs(node) if key.value == name), None)


def _pairs(node: Node | None) -> list[_Pair]:
    if not isinstance(node, MappingNode):
        return []
    return [(key, value) for key, value in node.value if isinstance(key, ScalarNode)]


def _items(node: Node | None) -> list[Node]:
    return list(node.value) if isinstance(node, SequenceNode) else []


def _accelerator(place: Node | None) -> str:
    """Return the one accelerator that is named there; "" for none and for several."""
    value = _child(place, "accelerators")
    if isinstance(value, ScalarNode):
        return str(value.value)
    pairs = _pairs(value)
    return str(pairs[0][0].value) if len(pairs) == 1 else ""


def _is_false(node: Node | None) -> bool:
    return isinstance(node, ScalarNode) and node.value.lower() in ("false", "no", "off")


def _start(node: Node) -> int:
    return int(node.start_mark.index)


def _end(node: Node) -> int:
    """Where the last thing of the node ends; the parser's own mark of a block is after the blanks that follow it."""
    inner: list[Node] = _items(node)
    if isinstance(node, MappingNode):
        inner = [value for _, value in _pairs(node)]
    if inner and not getattr(node, "flow_style", False):
        return _end(inner[-1])
    return int(node.end_mark.index)
