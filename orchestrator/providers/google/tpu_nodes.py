"""Tasks for TPU Nodes, the architecture before TPU VMs: recognised, refused, and rewritten for a TPU VM.

A TPU Node was driven by a second machine, named by `instance_type`, and had runtime versions like 2.12.0 (SkyPilot
documentation, "Cloud TPU", 2023). A TPU VM needs neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

from orchestrator.catalog import tpu
from orchestrator.errors import UserError
from orchestrator.task.errors import OutdatedTaskError, Path, Problem, TaskError, TaskRewrite
from orchestrator.task.yaml_edit import Edit, apply_edits, child_of, end_of, items_of, pairs_of, remove_keys, start_of
from orchestrator.task.yaml_reader import Document, Value, read_documents

_RUNTIMES_OF_VMS = ("tpu-", "v2-")  # every runtime version of TPU VMs begins so; Cloud TPU documentation, 2025
_DRIVER = re.compile(r"[a-z][a-z0-9]{1,3}-(?:standard|highmem|highcpu|custom|ultramem|megamem)-[0-9-]+")
_REMOTE = re.compile(r"TPU_NAME|KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS|grpc://")


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
    edits: list[Edit] = []
    try:
        roots = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError):  # stricter than the reader's own parser
        return None
    for root in roots:
        resources = child_of(root, "resources")
        outer = _accelerator(resources)
        for place in (resources, *items_of(child_of(resources, "any_of")), *items_of(child_of(resources, "ordered"))):
            if isinstance(place, MappingNode):
                edits += _of_place(text, place, _accelerator(place) or outer)
    made = apply_edits(text, edits)
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


def _of_place(text: str, place: MappingNode, accelerator: str) -> list[Edit]:
    """Edits of one mapping that may hold accelerator_args and instance_type."""
    args = child_of(place, "accelerator_args")
    if not isinstance(args, MappingNode) or not _is_false(child_of(args, "tpu_vm")):
        return []
    removed = {"tpu_vm", "tpu_name"}
    edits: list[Edit] = []
    runtime = child_of(args, "runtime_version")
    if isinstance(runtime, ScalarNode) and not runtime.value.startswith(_RUNTIMES_OF_VMS):
        own = _runtime_version(accelerator)
        if own:
            edits.append(Edit(start_of(runtime), end_of(runtime), own))
        else:
            removed.add("runtime_version")
    names = {key.value for key, _ in pairs_of(args)}
    if names <= removed:
        edits = remove_keys(text, place, {"accelerator_args"} | _driver(place))
    else:
        edits += remove_keys(text, args, removed) + remove_keys(text, place, _driver(place))
    return edits


def _driver(place: MappingNode) -> set[str]:
    """`instance_type` when it names the machine that drove the node."""
    value = child_of(place, "instance_type")
    return {"instance_type"} if isinstance(value, ScalarNode) and _DRIVER.fullmatch(value.value) else set()


def _runtime_version(accelerator: str) -> str:
    try:
        found = tpu.find_slice(accelerator.partition(":")[0])
    except UserError:
        return ""
    return found.runtime_version if found is not None else ""


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


def _accelerator(place: Node | None) -> str:
    """Return the one accelerator that is named there; "" for none and for several."""
    value = child_of(place, "accelerators")
    if isinstance(value, ScalarNode):
        return str(value.value)
    pairs = pairs_of(value)
    return str(pairs[0][0].value) if len(pairs) == 1 else ""


def _is_false(node: Node | None) -> bool:
    return isinstance(node, ScalarNode) and node.value.lower() in ("false", "no", "off")
