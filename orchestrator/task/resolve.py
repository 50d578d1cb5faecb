"""A validated section becomes a Task: names resolved, variables filled in, candidates completed.

Every mistake is collected with its path; `Resolver.task` returns None when there was one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.drivers import get_driver
from orchestrator.errors import UserError
from orchestrator.task.automatic import AUTO, ChooseMachines
from orchestrator.task.candidates import Candidates, resolve_candidates
from orchestrator.task.errors import InvalidValueError, Issue, Path
from orchestrator.task.model import (
    NO_ESTIMATE,
    FileMount,
    GitSource,
    Limits,
    MountMode,
    MountSection,
    Order,
    Recovery,
    Task,
    TaskFields,
    TaskSection,
    Train,
    UserHost,
)
from orchestrator.task.mounts import check_mode, describe_writes, read_mount
from orchestrator.task.partial import Broken
from orchestrator.task.resources import Resources
from orchestrator.task.short_forms import check_mount_source, fill_variables, format_env, list_variables
from orchestrator.task.yaml_reader import Value
from orchestrator.values import Secret

_MOST_MOUNTS = 200  # each is a step of a plan, which has at most 1,000, and a bucket that is asked for its place


@dataclass(slots=True, kw_only=True)
class Resolver:
    """The resolution of one task.

    Attributes:
        section: The task as written.
        data: The document that it was read from.
        texts: How scalars were written, by path.
        shell: Where null envs and secrets are looked up.
        restored: The task comes from JSON, which has names of secrets only and mounts whose variables are filled in.
        secrets_elsewhere: Another computer has the values of secrets: their names suffice here.
        broken: What was left out of the section.
        find_source_problem: Says what is wrong with a local workdir or mount.
        choose_machines: Chooses the machines of a task that leaves them to orch.
        complete: Whether the machines and mounts of the draft are all those of the task.
        issues: What is wrong.
        notes: What was understood differently from how it was written.
    """

    section: TaskSection
    data: Value
    texts: Mapping[Path, str]
    shell: Mapping[str, str]
    restored: bool = False
    secrets_elsewhere: bool = False
    broken: Broken = field(default_factory=Broken)
    find_source_problem: Callable[[str], InvalidValueError | None] | None = None
    choose_machines: ChooseMachines | None = None
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
        section, unchosen = self.section, False
        if (chosen := self._choose(section)) is None:
            unchosen = True
        else:
            section = chosen
        envs = self._fill_values("envs", section.envs)
        secrets = self._fill_values("secrets", section.secrets)
        before = len(self.issues)
        found = Candidates((), Order.GIVEN)
        if not self.broken.machines_unknown and not unchosen:
            found = resolve_candidates(section.resources, self.issues)
        self.complete = not (self.broken.machines_unknown or unchosen) and len(self.issues) == before
        hosts = section.hosts.resolve()
        mounts = self._resolve_mounts(envs, _bucket_scheme(found) if self.complete else "")
        workdir = self._resolve_workdir(envs)
        if section.train is not None and not self.restored:
            # A run that resumes was checked at its launch; its trainer reports itself what it does not take.
            from orchestrator.task.trainer_settings import find_setting_problems

            self.issues += find_setting_problems(section.train.args, self.data)
            self.issues += _find_candidate_problems(section.train, found)
        self.notes += found.notes
        unused = [name for name in ("inputs", "outputs") if getattr(section, name)]
        self.notes += [f"`{name}` has no effect: {NO_ESTIMATE}" for name in unused]
        plain: dict[str, Any] = {name: getattr(section, name) for name in TaskFields.model_fields}
        plain["workdir"] = workdir
        plain["recovery"] = _resolve_recovery(section)
        plain["limits"] = _resolve_limits(section)
        return Task.model_construct(
            None,
            **plain,
            choices=found.all,
            order=found.order,
            num_nodes=_count_nodes(section, found.all, hosts),
            file_mounts=mounts,
            envs=tuple(envs.items()),
            secret_names=tuple(section.secrets),
            autostop=section.resources.autostop,
            auto=section.resources.auto,
            grow=section.resources.grow,
            hosts=hosts,
            config=section.config,
            secrets=tuple(Secret(name, value) for name, value in secrets.items()),
        )

    def _choose(self, section: TaskSection) -> TaskSection | None:
        """Return the section with every candidate written out where orch chooses them, or None when it cannot."""
        resources, nodes = section.resources, section.num_nodes
        automatic = resources.accelerators == AUTO
        if automatic and nodes is not None:
            self._report(("num_nodes",), _NODES_ARE_CHOSEN)
        if automatic and resources.instance_type:
            self._report(("resources", "instance_type"), _MACHINE_IS_NAMED)
        if resources.auto is not None and not automatic and not (resources.ordered or resources.estimate):
            first = [name for name in type(resources.auto).model_fields if name in resources.auto.model_fields_set][:1]
            self._report(("resources", "auto", *first), _NOTHING_TO_CHOOSE)
        if not (automatic or isinstance(nodes, str)):
            return section
        path = ("resources", "accelerators") if automatic else ("num_nodes",)
        if self.choose_machines is None:
            self._report(path, _CANNOT_CHOOSE)
        if self.broken.paths or self.issues or self.choose_machines is None:
            return None
        try:
            chosen = self.choose_machines(section)
        except UserError as error:
            self.issues.append(Issue(path=path, what=error.what, why=error.why, next_step=error.next_step))
            return None
        self.notes += chosen.notes
        return chosen.section

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
                elif not (self.restored or self.secrets_elsewhere):
                    self._report_missing(path, key, f"export {key}=VALUE, or add --secret {key}=VALUE")
            except InvalidValueError as error:
                self._report(path, error)
        missing = (
            []
            if name == "secrets" and (self.restored or self.secrets_elsewhere)
            else [key for key in written if key not in found]
        )
        self._unfilled.update(missing)
        return found | dict.fromkeys(missing, "")

    def _report_missing(self, path: Path, key: str, step: str) -> None:
        why = "null means that the shell or a flag gives it"
        self.issues.append(Issue(path=path, what=f"`{path[0]}.{key}` has no value", why=why, next_step=step))

    def _resolve_mounts(self, envs: Mapping[str, str], scheme: str) -> tuple[FileMount, ...]:
        mounts: list[FileMount] = []
        if len(self.section.file_mounts) > _MOST_MOUNTS and not self.restored:
            self._report(("file_mounts",), _describe_mounts(len(self.section.file_mounts)))
            return ()
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
            read_only = value.read_only
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


def _describe_mounts(count: int) -> InvalidValueError:
    what = f"{count} entries of `file_mounts` are too many"
    why = f"each is a step on every host, and at most {_MOST_MOUNTS} are served"
    return InvalidValueError(what, why, "name folders that contain them")


_NODES_ARE_CHOSEN = InvalidValueError("`num_nodes` is chosen with the machines", "accelerators: auto", "remove it")
_MACHINE_IS_NAMED = InvalidValueError(
    "`instance_type` names the machine that `accelerators: auto` chooses", "", "remove one of them, or use only"
)
_NOTHING_TO_CHOOSE = InvalidValueError(
    "this has nothing to choose", "it is for `accelerators: auto`, and machines are named", "remove it"
)
_CANNOT_CHOOSE = InvalidValueError("machines are not chosen here", "", "name them, or: orch plan FILE")


def _count_nodes(section: TaskSection, choices: tuple[Resources, ...], hosts: tuple[UserHost, ...]) -> int:
    """Return the nodes as written; for machines of the user's own, as many as the list holds."""
    if section.num_nodes is None and hosts and choices:
        return max(1, len(hosts) // choices[0].machine.hosts)
    return section.num_nodes if isinstance(section.num_nodes, int) else 1


def _find_candidate_problems(train: Train, found: Candidates) -> Iterator[Issue]:
    """Yield what is wrong with the trainer's settings of single candidates."""
    from orchestrator.task.trainer_settings import find_setting_problems

    for settings in dict.fromkeys(choice.settings for choice in found.all if choice.settings):
        for issue in find_setting_problems(tuple((dict(train.args) | dict(settings)).items()), {}):
            yield replace(issue, path=("resources",), what=f"`settings` of a candidate: {issue.what}")


def _resolve_limits(section: TaskSection) -> Limits:
    """Return the section `limits`, where the budget of the choice is the most that the run may cost."""
    auto, limits = section.resources.auto, section.limits
    if auto is None or auto.budget is None:
        return limits
    most = min(auto.budget, limits.max_cost) if limits.max_cost is not None else auto.budget
    return limits.model_copy(update={"max_cost": most})


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
