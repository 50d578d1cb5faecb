"""The pure half of Compute Engine: its requests in the order in which they are sent, and what it knows of its hosts."""

from __future__ import annotations

import uuid
from dataclasses import replace

from orchestrator.catalog.image_pythons import name_ubuntu_python
from orchestrator.catalog.machines import ComputeType
from orchestrator.errors import CannotStopError, UserError
from orchestrator.providers.google.body import labels_of
from orchestrator.providers.google.compute import bodies, commands
from orchestrator.providers.google.compute.parts import Part, Wanted, read
from orchestrator.providers.google.session import loopback_endpoint, variables_of_buckets
from orchestrator.providers.loopback import loopback_facts
from orchestrator.render.templates import render_template
from orchestrator.slices import Candidate, HostFacts, Request, SliceSpec
from orchestrator.values import Text, Unknown

SERVICE = "compute.v1"
_REQUEST_IDS = uuid.UUID("5b2c0d0e-6a43-5a0b-9a51-2a8c5d1f7c12")  # namespace of ours, made once


class ComputePlanner:
    """Sends nothing and loads no SDK. Every method raises UserError for what Compute Engine cannot give."""

    name = "gcp"

    def create_request(self, spec: SliceSpec) -> Request:
        """The last request is the main one; all others come before it."""
        wanted = read(spec.candidate)
        labels_of(spec)  # one that cannot be written is refused before anything is sent
        steps = [step for part in wanted.parts(spec.name) for step in _create(spec, wanted, part)]
        return replace(steps[-1], before=tuple(steps[:-1]), why=_why(wanted))

    def end_request(self, name: str, candidate: Candidate) -> Request:
        """Machines first; templates and policies when no group uses them any more."""
        wanted = read(candidate)
        every = wanted.parts(name)
        machines = [_delete(wanted, part, "instanceGroupManagers" if part.grouped else "instances") for part in every]
        rest = [
            _delete(wanted, part, kind)
            for part in every
            if part.grouped
            for kind in ("instanceTemplates", "resourcePolicies")
        ]
        return replace(machines[-1], before=tuple(machines[:-1]), after=tuple(rest))

    def stop_request(self, name: str, candidate: Candidate) -> Request:
        return _power(name, "stop", candidate)

    def start_request(self, name: str, candidate: Candidate) -> Request:
        return _power(name, "start", candidate)

    def host_facts(self, candidate: Candidate) -> HostFacts:
        plain = isinstance(read(candidate).asked.machine, ComputeType)
        stops = plain and _stop_refusal(candidate) is None  # TPU instances cannot be started again
        if loopback_endpoint():  # the hosts stand on this computer, and their buckets do
            verb = "off" if stops else ""
            return loopback_facts(candidate, variables_of_buckets(), end_verb="delete", stop_verb=verb)
        env = () if plain else (("PJRT_DEVICE", "TPU"),)
        return HostFacts(
            env=env,
            image_python=name_ubuntu_python(read(candidate).image.rpartition("/")[2]),
            end_command=render_template("google/end-instance.sh.j2"),
            stop_command=render_template("google/stop-instance.sh.j2") if stops else "",
        )


def stop_refusal(what: str, slices: int, hosts_per_slice: int, *, deleted: bool) -> UserError | None:
    """Why these machines cannot be stopped and kept; None when they can. deleted: they go when they are stopped.

    Several instances are stopped one by one. After a crash in between, one that still runs would look stopped.
    """
    if hosts_per_slice > 1:
        why = "a group with a topology is of use only as a whole and cannot be stopped"
    elif slices > 1:
        why = "Compute Engine stops instances one by one, and orch only a single one"
    elif deleted:
        why = "spot and flex-start machines are deleted, not stopped"
    else:
        return None
    return CannotStopError(what, why)


def request_id(token: Text, step: str) -> Text:
    """The same for the same step of the same slice: a repeated request is answered with what the first one began."""
    if not token.is_known:
        return Text.of(Unknown("request id, made from the cluster id"))
    return Text.of(str(uuid.uuid5(_REQUEST_IDS, f"{token.reveal()}/{step}")))


def _create(spec: SliceSpec, wanted: Wanted, part: Part) -> list[Request]:
    """What one TPU slice takes, in order."""
    if not part.grouped:
        target = Text.of(wanted.in_zone, "/instances?requestId=", request_id(spec.token, part.name))
        whole = bodies.instance(spec, wanted, part)
        return [
            Request(
                service=SERVICE,
                method="POST",
                target=target.preview(),
                body=whole,
                command=commands.instance(spec, wanted, part, target, whole),
            )
        ]
    steps = [
        ("resourcePolicies", wanted.in_region, bodies.policy(spec, wanted, part)),
        ("instanceTemplates", wanted.path("global"), bodies.template(spec, wanted, part)),
        ("instanceGroupManagers", wanted.in_zone, bodies.group(spec, wanted, part)),
    ]
    made: list[Request] = []
    for kind, scope, whole in steps:
        target = Text.of(scope, f"/{kind}?requestId=", request_id(spec.token, f"{kind}/{part.name}"))
        made.append(
            Request(
                service=SERVICE,
                method="POST",
                target=target.preview(),
                body=whole,
                command=_command(kind, spec, wanted, part, target, whole),
            )
        )
    if wanted.asked.flex:
        where = f"/instanceGroupManagers/{part.name}/resize?requestId="
        step = request_id(spec.token, f"resize/{part.name}")
        target = Text.of(wanted.in_zone, where, step, f"&size={part.hosts}")
        made.append(
            Request(service=SERVICE, method="POST", target=target.preview(), command=commands.resize(wanted, part))
        )
    return made


def _command(
    kind: str, spec: SliceSpec, wanted: Wanted, part: Part, target: Text, whole: dict[str, object]
) -> tuple[Text, ...]:
    match kind:
        case "resourcePolicies":
            return commands.policy(spec, wanted, part)
        case "instanceTemplates":
            return commands.template(spec, wanted, part)
        case _:
            return commands.group(target, whole, part)


def _delete(wanted: Wanted, part: Part, kind: str) -> Request:
    scope = {"instanceTemplates": wanted.path("global"), "resourcePolicies": wanted.in_region}.get(kind, wanted.in_zone)
    target = Text.of(scope, f"/{kind}/{part.name}").preview()
    return Request(service=SERVICE, method="DELETE", target=target, command=commands.delete(wanted, kind, part.name))


def _stop_refusal(candidate: Candidate) -> UserError | None:
    wanted = read(candidate)
    machine = wanted.asked.machine
    deleted = "instanceTerminationAction" in bodies.scheduling(wanted)
    refusal = stop_refusal(machine.name, wanted.asked.slices, machine.hosts, deleted=deleted)
    if isinstance(machine, ComputeType) and machine.local_ssd:
        return CannotStopError(machine.name, "its local disks would be lost")
    return refusal


def _power(name: str, verb: str, candidate: Candidate) -> Request:
    wanted = read(candidate)
    refusal = _stop_refusal(candidate)
    if refusal is not None:
        raise refusal
    target = Text.of(wanted.in_zone, f"/instances/{name}/{verb}").preview()
    return Request(service=SERVICE, method="POST", target=target, command=commands.power(wanted, verb, name))


def _why(wanted: Wanted) -> str:
    reason = wanted.asked.path.reason
    if wanted.asked.hosts_per_slice == 1:
        return reason
    return f"{reason}; several hosts are a group whose workload policy names the topology"


PLANNER = ComputePlanner()
