"""A checked document becomes a Task: short forms written out, names resolved, variables filled in.

Every mistake is collected with its path; `Builder.task` returns None when there was one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from orchestrator.spec import forms, trainer
from orchestrator.spec.choices import Choices, read_choices
from orchestrator.spec.errors import FormError
from orchestrator.spec.read import flag, items, number, section, text, whole, wholes
from orchestrator.spec.schema import Issue
from orchestrator.spec.task import (
    DEFAULT_CAPACITY_WAIT_HOURS,
    DEFAULT_HANG_MINUTES,
    DEFAULT_KEEP,
    DEFAULT_MAX_FAILURES,
    DEFAULT_MAX_PREEMPTIONS,
    DEFAULT_STRATEGY,
    AutoStop,
    AwsSettings,
    Checkpoint,
    FileMount,
    GcpSettings,
    GitSource,
    Limits,
    Mode,
    Recovery,
    Task,
    Train,
    UserHost,
)
from orchestrator.spec.yaml_reader import Path, Value
from orchestrator.values import Secret


@dataclass(slots=True)
class Builder:
    """One task. texts: how scalars were written, by path. shell: where null envs and secrets are looked up.

    restored: the task comes from JSON, which holds names of secrets only and mounts whose variables are filled in.
    """

    data: Mapping[str, Value]
    texts: Mapping[Path, str]
    shell: Mapping[str, str]
    restored: bool = False
    issues: list[Issue] = field(default_factory=list[Issue])
    notes: list[str] = field(default_factory=list[str])

    def task(self) -> Task | None:
        """The task, None when `issues` says why not."""
        envs = self._variables("envs")
        secrets = self._variables("secrets")
        resources = section(self.data, "resources")
        choices = read_choices(resources, self.issues)
        hosts = self._hosts(section(self.data, "hosts"))
        autostop = self._autostop(resources.get("autostop"))
        mounts = self._mounts(envs, tuple(section(self.data, "secrets")))
        checkpoint = self._checkpoint(section(self.data, "checkpoint"))
        train = self._train()
        if self.issues or choices is None:
            return None
        self.notes += choices.notes
        return Task(
            choices=choices.all,
            name=text(self.data, "name"),
            order=choices.order,
            num_nodes=self._nodes(choices, hosts),
            workdir=self._workdir(),
            file_mounts=mounts,
            envs=tuple(envs.items()),
            secret_names=tuple(section(self.data, "secrets")),
            setup=text(self.data, "setup"),
            run=text(self.data, "run"),
            train=train,
            autostop=autostop,
            checkpoint=checkpoint,
            recovery=self._recovery(resources),
            limits=self._limits(section(self.data, "limits")),
            hosts=hosts,
            gcp=self._gcp(),
            aws=self._aws(),
            secrets=tuple(Secret(name, value) for name, value in secrets.items()),
        )

    def _nodes(self, choices: Choices, hosts: tuple[UserHost, ...]) -> int:
        """As written; for machines of the user's own, as many as the list holds."""
        written = whole(self.data, "num_nodes")
        if written is None and hosts:
            return max(1, len(hosts) // choices.all[0].machine.hosts)
        return written or 1

    def _variables(self, name: str) -> dict[str, str]:
        """Envs or secrets with a value each: written, or taken from the shell where null."""
        found: dict[str, str] = {}
        for key, value in section(self.data, name).items():
            path = (name, key)
            try:
                if value is not None:
                    found[key] = forms.env_text(f"{name}.{key}", value, self.texts.get(path))
                elif key in self.shell:
                    found[key] = self.shell[key]
                elif name == "envs":
                    self._missing(path, key, "--env")
                elif not self.restored:
                    self._missing(path, key, "--secret")
            except FormError as error:
                self._issue(path, error)
        return found

    def _missing(self, path: Path, key: str, flag_name: str) -> None:
        example = f"{flag_name} {key}=VALUE" if flag_name == "--env" else f"export {key}, then {flag_name} {key}"
        self.issues.append(
            Issue(
                path,
                f"`{path[0]}.{key}` has no value",
                "null means that the shell or a flag gives it",
                f"add {example}",
            )
        )

    def _workdir(self) -> str | GitSource | None:
        value = self.data.get("workdir")
        if isinstance(value, dict):
            return GitSource(text(value, "url"), text(value, "ref"))
        return value if isinstance(value, str) else None

    def _autostop(self, value: Value) -> AutoStop | None:
        try:
            return forms.autostop(value)
        except FormError as error:
            self._issue(("resources", "autostop"), error)
            return None

    def _mounts(self, envs: Mapping[str, str], secret_names: tuple[str, ...]) -> tuple[FileMount, ...]:
        mounts: list[FileMount] = []
        for written, value in section(self.data, "file_mounts").items():
            path, target = ("file_mounts", written), written
            try:
                mount = _mount(value)
                if not self.restored:
                    target = forms.fill_in(written, envs, secret_names)
                    mount = replace(mount, source=forms.fill_in(mount.source, envs, secret_names))
                mounts.append(FileMount(target, forms.mount_source(mount.source), mount.mode))
            except FormError as error:
                self._issue(path, error)
        return tuple(mounts)

    def _checkpoint(self, data: Mapping[str, Value]) -> Checkpoint:
        try:
            bucket = forms.bucket(text(data, "bucket")) if data.get("bucket") is not None else ""
        except FormError as error:
            self._issue(("checkpoint", "bucket"), error)
            bucket = ""
        return Checkpoint(bucket, whole(data, "every"), whole(data, "keep") or DEFAULT_KEEP)

    def _recovery(self, resources: Mapping[str, Value]) -> Recovery:
        """Our section, and what the dialect's job_recovery says where ours is silent."""
        data = section(self.data, "recovery")
        dialect = resources.get("job_recovery")
        recovery = {"strategy": dialect} if isinstance(dialect, str) else section(resources, "job_recovery")
        codes = wholes(data, "restart_on_exit_codes") or wholes(recovery, "recover_on_exit_codes")
        preemptions, failures = whole(data, "max_preemptions"), whole(data, "max_failures")
        failures = whole(recovery, "max_restarts_on_errors") if failures is None else failures
        hang, wait = number(data, "hang_minutes"), number(data, "capacity_wait_hours")
        return Recovery(
            DEFAULT_MAX_PREEMPTIONS if preemptions is None else preemptions,
            DEFAULT_MAX_FAILURES if failures is None else failures,
            tuple(dict.fromkeys(codes)),
            text(recovery, "strategy").upper() or DEFAULT_STRATEGY,
            tuple(dict.fromkeys(wholes(data, "fail_on_exit_codes"))),
            DEFAULT_HANG_MINUTES if hang is None else hang,
            DEFAULT_CAPACITY_WAIT_HOURS if wait is None else wait,
            data.get("on_demand_fallback") is True,
        )

    def _limits(self, data: Mapping[str, Value]) -> Limits:
        return Limits(number(data, "max_hours"), whole(data, "idle_minutes"), number(data, "max_cost"))

    def _train(self) -> Train | None:
        if not isinstance(self.data.get("train"), dict):
            return None
        data = section(self.data, "train")
        try:
            args = forms.train_args(data.get("args"))
            if not self.restored:  # a run of an older orch: the trainer says itself what it does not take
                self.issues += trainer.check(args, data.get("args"))
            return Train(text(data, "backend") or "auto", args, flag(data, "smoke"))
        except FormError as error:
            self._issue(("train", "args"), error)
            return None

    def _gcp(self) -> GcpSettings:
        data = section(section(self.data, "config"), "gcp")
        subnets = data.get("subnet_names")
        names = (subnets,) if isinstance(subnets, str) else tuple(str(item) for item in items(data, "subnet_names"))
        return GcpSettings(
            vpc_name=text(data, "vpc_name"),
            subnet_names=names,
            project=text(data, "project"),
            service_account=text(data, "service_account"),
            internal_ips=flag(data, "internal_ips"),
            tags=tuple(str(tag) for tag in items(data, "tags")),
            access=text(data, "access"),
            jump=text(data, "jump"),
            firewall=data.get("firewall") is not False,
            ssh_cidr=text(data, "ssh_cidr"),
            oslogin=flag(data, "oslogin"),
        )

    def _aws(self) -> AwsSettings:
        data = section(section(self.data, "config"), "aws")
        return AwsSettings(
            profile=text(data, "profile"),
            subnets=tuple(str(item) for item in items(data, "subnets")),
            security_group=text(data, "security_group"),
            instance_profile=text(data, "instance_profile"),
            access=text(data, "access"),
            jump=text(data, "jump"),
            ssh_cidr=text(data, "ssh_cidr"),
            user=text(data, "user"),
        )

    def _hosts(self, data: Mapping[str, Value]) -> tuple[UserHost, ...]:
        hosts: list[UserHost] = []
        for index, entry in enumerate(items(data, "addresses")):
            try:
                hosts.append(_host(entry, data))
            except FormError as error:
                self._issue(("hosts", "addresses", index), error)
        return tuple(hosts)

    def _issue(self, path: Path, error: FormError) -> None:
        self.issues.append(Issue(path, error.what, error.why, error.next_step))


def _mount(value: Value) -> FileMount:
    """A mount before variables are filled in. A plain address is copied; a storage object is mounted by default."""
    if not isinstance(value, dict):
        return FileMount("", str(value), Mode.COPY)
    if value.get("persistent") is False:
        raise FormError("a mount with `persistent: false` is not served", "orch never deletes a bucket", "remove it")
    mode = Mode(text(value, "mode").upper() or "MOUNT")
    source, name, store = text(value, "source"), text(value, "name"), text(value, "store")
    if not source and not (name and store):
        raise FormError("a mount needs a source", "", "write source: s3://NAME, or name and store")
    if source and name:
        raise FormError(
            "a mount with `name` and `source` would make a bucket",
            "orch makes none",
            "copy the files to the bucket yourself, then write source: s3://NAME",
        )
    source = source or f"{ {'s3': 's3', 'gcs': 'gs'}[store] }://{name}"
    if mode is not Mode.COPY and "://" not in source and "$" not in source:
        raise FormError(f"`{source}` cannot be mounted with mode {mode}", "only buckets can", "write mode: COPY")
    return FileMount("", source, mode)


def _host(entry: Value, section_data: Mapping[str, Value]) -> UserHost:
    """One address with the section's defaults filled in."""
    data = entry if isinstance(entry, dict) else {}
    if isinstance(entry, dict) and not text(entry, "host"):
        raise FormError("a host needs an address", "", "write host: NAME")
    host = forms.address(text(data, "host") if data else str(entry))
    jump = text(data, "jump") or text(section_data, "jump")
    for hop in jump.split(",") if jump else ():
        forms.address(hop.strip())
    return UserHost(
        host=host.host,
        user=text(data, "user") or host.user or text(section_data, "user"),
        port=whole(data, "port") or host.port or whole(section_data, "port") or 22,
        key=text(data, "key") or text(section_data, "key"),
        jump=jump,
        internal_ip=text(data, "internal_ip"),
    )
