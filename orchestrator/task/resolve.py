"""A validated section becomes a Task: names resolved, variables filled in, candidates completed.

Every mistake is collected with its path; `Resolver.task` returns None when there was one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.drivers import get_driver
from orchestrator.task.candidates import Candidates, resolve_candidates
from orchestrator.task.errors import InvalidValueError, Issue, Path
from orchestrator.task.model import (
    FileMount,
    GitSource,
    MountMode,
    MountSection,
    Recovery,
    Task,
    TaskFields,
    TaskSection,
    UserHost,
)
from orchestrator.task.short_forms import check_mount_source, fill_variables, format_env
from orchestrator.task.yaml_reader import Value
from orchestrator.values import Secret


@dataclass(slots=True, kw_only=True)
class Resolver:
    """The resolution of one task.

    Attributes:
        section: The task as written.
        data: The document that it was read from.
        texts: How scalars were written, by path.
        shell: Where null envs and secrets are looked up.
        restored: The task comes from JSON, which has names of secrets only and mounts whose variables are filled in.
        issues: What is wrong.
        notes: What was understood differently from how it was written.
    """

    section: TaskSection
    data: Value
    texts: Mapping[Path, str]
    shell: Mapping[str, str]
    restored: bool = False
    issues: list[Issue] = field(default_factory=list[Issue])
    notes: list[str] = field(default_factory=list[str])

    def task(self) -> Task | None:
        """Return the task, None when `issues` says why not."""
        section = self.section
        envs = self._fill_values("envs", section.envs)
        secrets = self._fill_values("secrets", section.secrets)
        found = resolve_candidates(section.resources, self.issues)
        hosts = section.hosts.resolve()
        mounts = self._resolve_mounts(envs, _bucket_scheme(found))
        workdir = self._resolve_workdir(envs)
        if section.train is not None and not self.restored:
            # Not for a run of an older orch: its trainer reports itself what it does not take.
            from orchestrator.task.trainer_settings import find_setting_problems

            self.issues += find_setting_problems(section.train.args, self.data)
        if self.issues or found is None:
            return None
        self.notes += found.notes
        plain: dict[str, Any] = {name: getattr(section, name) for name in TaskFields.model_fields}
        plain["workdir"] = workdir
        plain["recovery"] = _resolve_recovery(section)
        return Task.model_construct(
            None,
            **plain,
            choices=found.all,
            order=found.order,
            num_nodes=self._count_nodes(found, hosts),
            file_mounts=mounts,
            envs=tuple(envs.items()),
            secret_names=tuple(section.secrets),
            autostop=section.resources.autostop,
            hosts=hosts,
            config=section.config,
            secrets=tuple(Secret(name, value) for name, value in secrets.items()),
        )

    def _count_nodes(self, found: Candidates, hosts: tuple[UserHost, ...]) -> int:
        """Return the nodes as written; for machines of the user's own, as many as the list holds."""
        if self.section.num_nodes is None and hosts:
            return max(1, len(hosts) // found.all[0].machine.hosts)
        return self.section.num_nodes or 1

    def _fill_values(self, name: str, written: Mapping[str, Value]) -> dict[str, str]:
        """Return envs or secrets with a value each: written, or taken from the shell where null."""
        found: dict[str, str] = {}
        for key, value in written.items():
            path = (name, key)
            try:
                if value is not None:
                    found[key] = format_env(f"{name}.{key}", value, self.texts.get(path))
                elif key in self.shell:
                    found[key] = self.shell[key]
                elif name == "envs":
                    self._report_missing(path, key, f"add --env {key}=VALUE")
                elif not self.restored:
                    self._report_missing(path, key, f"export {key}=VALUE, or add --secret {key}=VALUE")
            except InvalidValueError as error:
                self._report(path, error)
        return found

    def _report_missing(self, path: Path, key: str, step: str) -> None:
        why = "null means that the shell or a flag gives it"
        self.issues.append(Issue(path=path, what=f"`{path[0]}.{key}` has no value", why=why, next_step=step))

    def _resolve_mounts(self, envs: Mapping[str, str], scheme: str) -> tuple[FileMount, ...]:
        secret_names = tuple(self.section.secrets)
        mounts: list[FileMount] = []
        for written, value in self.section.file_mounts.items():
            target = written
            try:
                if isinstance(value, MountSection):
                    store = fill_variables(value.store, envs, secret_names)
                    source, mode = _read_mount(value, store.lower(), scheme)
                else:
                    source, mode = value, MountMode.COPY
                if not self.restored:
                    target = fill_variables(written, envs, secret_names)
                    source = fill_variables(source, envs, secret_names)
                mounts.append(FileMount(target, check_mount_source(source), mode))
            except InvalidValueError as error:
                self._report(("file_mounts", written), error)
        return tuple(mounts)

    def _resolve_workdir(self, envs: Mapping[str, str]) -> str | GitSource | None:
        """Return the workdir with variables filled in, as the dialect does."""
        workdir, secret_names = self.section.workdir, tuple(self.section.secrets)
        if self.restored or workdir is None:
            return workdir
        try:
            if isinstance(workdir, str):
                return fill_variables(workdir, envs, secret_names)
            filled = {key: fill_variables(getattr(workdir, key), envs, secret_names) for key in ("url", "ref")}
            return workdir.model_copy(update=filled)
        except InvalidValueError as error:
            self._report(("workdir",), error)
            return workdir

    def _report(self, path: Path, error: InvalidValueError) -> None:
        self.issues.append(Issue(path=path, what=error.what, why=error.why, next_step=error.next_step))


def _resolve_recovery(section: TaskSection) -> Recovery:
    """Return the section `recovery`, with what the dialect's job_recovery sets where ours is silent."""
    dialect = section.resources.job_recovery
    filled = {
        name: getattr(dialect, alias)
        for name, alias in Recovery.aliases().items()
        if alias in dialect.model_fields_set and name not in section.recovery.model_fields_set
    }
    return section.recovery.model_copy(update=filled)


_STORES = {"s3": "s3", "gcs": "gs"}


def _bucket_scheme(found: Candidates | None) -> str:
    """Return the scheme of the buckets beside all candidates, "" where there are none or several."""
    choices = found.all if found is not None else ()
    schemes = {get_driver(choice.infra.provider).bucket_scheme for choice in choices}
    return schemes.pop() if len(schemes) == 1 else ""


def _read_mount(mount: MountSection, store: str, scheme: str) -> tuple[str, MountMode]:
    """Return source and mode of a mount that is a map, before variables are filled in.

    Args:
        mount: The mount as written.
        store: Its store, variables filled in.
        scheme: Of the bucket when the mount names no store.
    """
    if not mount.persistent:
        raise InvalidValueError(
            "a mount with `persistent: false` is not served", "orch never deletes a bucket", "remove it"
        )
    source, name = mount.source, mount.name
    if not source and not name:
        raise InvalidValueError("a mount needs a source", "", "write source: s3://NAME, or name and store")
    if store and store not in _STORES:
        raise InvalidValueError(
            f"`store` cannot be `{store}`", "orch mounts buckets of s3 and gcs", "write one of them"
        )
    if name and not source and not store and not scheme:
        why = "the machines are not all in one cloud, whose buckets are meant without a store"
        raise InvalidValueError(f"the bucket `{name}` needs a store", why, "write store: gcs, or store: s3")
    if source and name:
        raise InvalidValueError(
            "a mount with `name` and `source` would make a bucket",
            "orch makes none",
            "copy the files to the bucket yourself, then write source: s3://NAME",
        )
    source = source or f"{_STORES.get(store, scheme)}://{name}"
    if mount.mode is not MountMode.COPY and "://" not in source and "$" not in source:
        raise InvalidValueError(
            f"`{source}` cannot be mounted with mode {mount.mode}", "only buckets can", "write mode: COPY"
        )
    return source, mount.mode
