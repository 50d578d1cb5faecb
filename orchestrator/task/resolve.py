"""A validated section becomes a Task: names resolved, variables filled in, candidates completed.

Every mistake is collected with its path; `Resolver.task` returns None when there was one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.drivers import get_driver
from orchestrator.task.candidates import Candidates, resolve_candidates
from orchestrator.task.errors import InvalidValueError, Issue, Path
from orchestrator.task.model import (
    NO_ESTIMATE,
    FileMount,
    GitSource,
    MountMode,
    MountSection,
    Order,
    Recovery,
    Task,
    TaskFields,
    TaskSection,
    UserHost,
)
from orchestrator.task.mounts import check_mode, describe_writes, read_mount
from orchestrator.task.partial import Broken
from orchestrator.task.resources import Resources
from orchestrator.task.short_forms import check_mount_source, fill_variables, format_env, list_variables
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
        broken: What was left out of the section.
        find_source_problem: Says what is wrong with a local workdir or mount.
        complete: Whether the machines and mounts of the draft are all those of the task.
        issues: What is wrong.
        notes: What was understood differently from how it was written.
    """

    section: TaskSection
    data: Value
    texts: Mapping[Path, str]
    shell: Mapping[str, str]
    restored: bool = False
    broken: Broken = field(default_factory=Broken)
    find_source_problem: Callable[[str], InvalidValueError | None] | None = None
    complete: bool = True
    issues: list[Issue] = field(default_factory=list[Issue])
    notes: list[str] = field(default_factory=list[str])
    _unfilled: set[str] = field(default_factory=set[str])  # variables without a value

    def __post_init__(self) -> None:
        self._unfilled.update(self.broken.variables)

    def task(self) -> Task | None:
        """Return the task, None when `issues` says why not."""
        draft = self.draft()
        return None if self.issues else draft

    def draft(self) -> Task:
        """Return the task as far as it is right; it may have no candidates."""
        section = self.section
        envs = self._fill_values("envs", section.envs)
        secrets = self._fill_values("secrets", section.secrets)
        before = len(self.issues)
        found = Candidates((), Order.GIVEN)
        if not self.broken.machines_unknown:
            found = resolve_candidates(section.resources, self.issues)
        self.complete = not self.broken.machines_unknown and len(self.issues) == before
        hosts = section.hosts.resolve()
        mounts = self._resolve_mounts(envs, _bucket_scheme(found) if self.complete else "")
        workdir = self._resolve_workdir(envs)
        if section.train is not None and not self.restored:
            # Not for a run of an older orch: its trainer reports itself what it does not take.
            from orchestrator.task.trainer_settings import find_setting_problems

            self.issues += find_setting_problems(section.train.args, self.data)
        self.notes += found.notes
        unused = [name for name in ("inputs", "outputs") if getattr(section, name)]
        self.notes += [f"`{name}` has no effect: {NO_ESTIMATE}" for name in unused]
        plain: dict[str, Any] = {name: getattr(section, name) for name in TaskFields.model_fields}
        plain["workdir"] = workdir
        plain["recovery"] = _resolve_recovery(section)
        return Task.model_construct(
            None,
            **plain,
            choices=found.all,
            order=found.order,
            num_nodes=self._count_nodes(found.all, hosts),
            file_mounts=mounts,
            envs=tuple(envs.items()),
            secret_names=tuple(section.secrets),
            autostop=section.resources.autostop,
            hosts=hosts,
            config=section.config,
            secrets=tuple(Secret(name, value) for name, value in secrets.items()),
        )

    def _count_nodes(self, choices: tuple[Resources, ...], hosts: tuple[UserHost, ...]) -> int:
        """Return the nodes as written; for machines of the user's own, as many as the list holds."""
        if self.section.num_nodes is None and hosts and choices:
            return max(1, len(hosts) // choices[0].machine.hosts)
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
        missing = [] if name == "secrets" and self.restored else [key for key in written if key not in found]
        self._unfilled.update(missing)
        return found | dict.fromkeys(missing, "")

    def _report_missing(self, path: Path, key: str, step: str) -> None:
        why = "null means that the shell or a flag gives it"
        self.issues.append(Issue(path=path, what=f"`{path[0]}.{key}` has no value", why=why, next_step=step))

    def _resolve_mounts(self, envs: Mapping[str, str], scheme: str) -> tuple[FileMount, ...]:
        mounts: list[FileMount] = []
        for written, value in self.section.file_mounts.items():
            texts = (written, value) if isinstance(value, str) else (written, value.source, value.name, value.store)
            if self._unfilled & {name for text in texts for name in list_variables(text)}:
                continue
            if not self.complete and not isinstance(value, str) and not (value.source or value.store):
                continue  # which cloud's bucket it is depends on the machines
            try:
                mount = self._resolve_mount(written, value, envs, scheme)
            except InvalidValueError as error:
                self._report(("file_mounts", written), error)
            else:
                mounts.append(mount)
                if isinstance(value, MountSection) and not value.persistent:
                    self.notes.append(f"`persistent: false` of {written} has no effect: orch never deletes a bucket")
                if mount.in_s3 and not mount.read_only and not self.restored:
                    self.notes.append(describe_writes(mount))
                self._check_source(("file_mounts", written), "" if mount.from_bucket else mount.source)
        return tuple(mounts)

    def _resolve_mount(
        self, written: str, value: MountSection | str, envs: Mapping[str, str], scheme: str
    ) -> FileMount:
        secret_names = tuple(self.section.secrets)
        target, read_only = written, False
        if isinstance(value, MountSection):
            store = fill_variables(value.store, envs, secret_names)
            source, mode = read_mount(value, store.lower(), scheme)
            # Records of an orch before this field are of mounts that were read-only.
            read_only = value.read_only or (self.restored and "read_only" not in value.model_fields_set)
        else:
            source, mode = value, MountMode.COPY
        if not self.restored:
            target = fill_variables(written, envs, secret_names)
            source = fill_variables(source, envs, secret_names)
        mount = FileMount(target, check_mount_source(source), mode, read_only)
        if self.restored and not mount.in_s3:
            mount = replace(mount, read_only=False)
        check_mode(mount)
        return mount

    def _check_source(self, path: Path, source: str) -> None:
        """Report a local file or folder that does not exist."""
        problem = self.find_source_problem(source) if self.find_source_problem is not None and source else None
        if problem is not None:
            self._report(path, problem)

    def _resolve_workdir(self, envs: Mapping[str, str]) -> str | GitSource | None:
        """Return the workdir with variables filled in, as the dialect does."""
        workdir, secret_names = self.section.workdir, tuple(self.section.secrets)
        if self.restored or workdir is None:
            return workdir
        texts = (workdir,) if isinstance(workdir, str) else (workdir.url, workdir.ref)
        if self._unfilled & {name for text in texts for name in list_variables(text)}:
            return workdir
        try:
            if isinstance(workdir, str):
                filled_path = fill_variables(workdir, envs, secret_names)
                self._check_source(("workdir",), filled_path)
                return filled_path
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


def _bucket_scheme(found: Candidates) -> str:
    """Return the scheme of the buckets beside all candidates, "" where there are none or several."""
    schemes = {get_driver(choice.infra.provider).bucket_scheme for choice in found.all}
    return schemes.pop() if len(schemes) == 1 else ""
