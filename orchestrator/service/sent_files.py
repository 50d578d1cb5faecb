"""Files that members send for their launches: kept by their digest, named in tasks, and sent to hosts alone.

A member learns of a tree only whether they have sent it themselves. So a digest that they saw, or tried, neither says
what others have, nor gives them its files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.engine.state.sent_trees import MemberTrees
from orchestrator.errors import NotFoundError, OrchError, UserError
from orchestrator.exits import Exit
from orchestrator.paths import load_paths
from orchestrator.service.route import Answer, Call
from orchestrator.task.sent_tree import SentTree, parse_sent_tree


class MissingTreesError(OrchError):
    """The member has to send files first that the task names.

    Attributes:
        trees: Their names in the task.
    """

    code = "files-missing"
    exit_status = Exit.CONFLICT

    def __init__(self, trees: Sequence[SentTree]) -> None:
        step = "send each with PUT /v1/blobs/DIGEST, then order again"
        super().__init__("files of the task were not sent", ", ".join(map(str, trees)), step)
        self.trees = tuple(map(str, trees))


def refuse_missing_trees(call: Call, names: Sequence[str]) -> None:
    """Refuse a task whose files the member has not sent, or which were deleted since, as unused.

    Raises:
        MissingTreesError: There are such.
    """
    trees = (parse_sent_tree(name) for name in names)
    missing = _trees_of(call).find_missing(tree for tree in trees if tree is not None)
    if missing:
        raise MissingTreesError(missing)


def show_tree(call: Call) -> Answer:
    """Answer whether the member has sent a tree that is still here."""
    tree = _parse_tree(call)
    if not _trees_of(call).has(tree):
        raise NotFoundError("you have not sent these files, or they were deleted, as unused", "", "send them again")
    return Answer(document={"version": 1, "kind": "tree", "tree": str(tree)})


def keep_tree(call: Call) -> Answer:
    """Keep the tree that was sent, and answer with its name in a task."""
    tree, archive = _parse_tree(call), call.body
    assert isinstance(archive, Path)  # noqa: S101  # the route says that content is received
    _trees_of(call).keep(tree, archive)
    return Answer(document={"version": 1, "kind": "tree", "tree": str(tree)}, status=201)


def _parse_tree(call: Call) -> SentTree:
    tree = SentTree(digest=call.path["digest"])
    if parse_sent_tree(str(tree)) is None:
        raise UserError("that is not the digest of files", "64 characters of 0-9 and a-f", "see /openapi.json")
    return tree


def _trees_of(call: Call) -> MemberTrees:
    member = call.person.name if call.person is not None else ""
    return MemberTrees(where=load_paths(), member=member, common=call.site.files)
