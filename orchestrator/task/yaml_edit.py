"""Changes of a YAML text that leave the rest of it as it is: comments, blanks and the order of keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

Pair: TypeAlias = "tuple[ScalarNode, Node]"


@dataclass(frozen=True, slots=True)
class Edit:
    """The characters from start to end become `text`."""

    start: int
    end: int
    text: str = ""


def remove_keys(text: str, mapping: MappingNode, names: set[str]) -> list[Edit]:
    """Return the edits that remove these keys of a mapping, with their values."""
    pairs = pairs_of(mapping)
    return [
        _flow_removal(pairs, index, names) if mapping.flow_style else _block_removal(text, pairs, index)
        for index, (key, _) in enumerate(pairs)
        if key.value in names
    ]


def _block_removal(text: str, pairs: list[Pair], index: int) -> Edit:
    """Whole lines with what stands behind them; after a list's dash only up to the next key."""
    key, value = pairs[index]
    line = text.rfind("\n", 0, start_of(key)) + 1
    if text[line : start_of(key)].strip() and index + 1 < len(pairs):
        return Edit(start_of(key), start_of(pairs[index + 1][0]))
    end = text.find("\n", max(end_of(value), end_of(key)))
    return Edit(line, len(text) if end < 0 else end + 1)


def _flow_removal(pairs: list[Pair], index: int, removed: set[str]) -> Edit:
    """Return the pair with one comma: the one behind it, or the one before when nothing that stays follows."""
    following = next((key for key, _ in pairs[index + 1 :] if key.value not in removed), None)
    if following is not None:
        return Edit(start_of(pairs[index][0]), start_of(following))
    before = [value for key, value in pairs[:index] if key.value not in removed]
    return Edit(end_of(before[-1]) if before else start_of(pairs[0][0]), end_of(pairs[-1][1]))


def apply_edits(text: str, edits: list[Edit]) -> str:
    """Return the text with all edits made; those that touch each other are joined."""
    made, reached = "", 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        made += text[reached : edit.start] + edit.text  # neighbours in a flow mapping share what is between them
        reached = max(reached, edit.end)
    return made + text[reached:]


def child_of(node: Node | None, name: str) -> Node | None:
    """Return the value of a key, None where there is no such key or no mapping."""
    return next((value for key, value in pairs_of(node) if key.value == name), None)


def pairs_of(node: Node | None) -> list[Pair]:
    """Return keys and values of a mapping; none of other nodes."""
    if not isinstance(node, MappingNode):
        return []
    return [(key, value) for key, value in node.value if isinstance(key, ScalarNode)]


def items_of(node: Node | None) -> list[Node]:
    """Return the items of a list; none of other nodes."""
    return list(node.value) if isinstance(node, SequenceNode) else []


def start_of(node: Node) -> int:
    """Return the index of the first character of a node."""
    return int(node.start_mark.index)


def end_of(node: Node) -> int:
    """Return the index after the last item of a node; the parser's mark of a block is after the blanks behind it."""
    inner: list[Node] = items_of(node)
    if isinstance(node, MappingNode):
        inner = [value for _, value in pairs_of(node)]
    if inner and not getattr(node, "flow_style", False):
        return end_of(inner[-1])
    return int(node.end_mark.index)
