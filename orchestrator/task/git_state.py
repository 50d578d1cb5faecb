"""The section `git` of a task: from which commit its workdir is. No host gets `.git`, so variables say it there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from orchestrator.task.section import Section, Text, own

Commit = Annotated[str, Field(pattern=r"^(?:[0-9a-f]{7,64})?$", description="a commit's name, in hexadecimal digits")]
Variable = Annotated[str, Field(pattern=r"^(?:[A-Z][A-Z0-9_]*)?$", description="the name of a variable, in capitals")]


class GitState(Section):
    """The state of the workdir's repository when it was read. orch fills it in."""

    commit: Commit = own("", "commit that was checked out", "a commit's name")
    branch: Text = own("", "its branch, if one was checked out", "a branch")
    changes: Commit = own("", "SHA-256 of what was changed since the commit; absent without a change", "a digest")
    remote: Text = own("", "where the repository comes from", "an address")
    version: Text = own("", "the package's version by its tags, where its build asks git for it", "a version")
    version_variable: Variable = own("", "from which the build takes the version instead", "the name of a variable")

    def list_variables(self) -> Iterator[tuple[str, str]]:
        """Yield the variables of setup and program."""
        # Source: wandb 0.31.0, wandb/env.py: GIT_COMMIT and GIT_REMOTE_URL, for programs outside a repository.
        named = {
            "ORCH_GIT_COMMIT": self.commit,
            "ORCH_GIT_BRANCH": self.branch,
            "ORCH_GIT_CHANGES": self.changes,
            "WANDB_GIT_COMMIT": self.commit,
            "WANDB_GIT_REMOTE_URL": self.remote,
            self.version_variable: self.version,
        }
        yield from ((name, value) for name, value in named.items() if name and value)
