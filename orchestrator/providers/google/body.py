"""Bodies of create requests: the API's own field names (TPU API v2 and v2alpha1, REST reference). Pure.

No default is written, but for the provisioning model of v2alpha1, which gcloud 528 always sends there.

What is known only when it is sent (the project, our public key, the host keys) stands as an Unknown in a Text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import cast

from orchestrator.catalog.tpu import get_generation
from orchestrator.providers.google import startup
from orchestrator.providers.google.choices import Choices
from orchestrator.providers.google.labels import INTENT, to_google
from orchestrator.slices import SliceKeys, SliceSpec
from orchestrator.values import Text, Unknown, fill_unknowns

USER_KEY = Unknown("public key of this computer, made at first launch")
_TIERS = {"guaranteed": "guaranteed", "best-effort": "bestEffort"}


def user_keys(login: str, keys: SliceKeys) -> str:
    """Return what USER_KEY stands for in the metadata `ssh-keys`: further keys are further lines of that login."""
    return f"\n{login}:".join(keys.login_keys)


def host_keys(entry: str) -> Unknown:
    return Unknown(f"private keys of the hosts, {entry.removeprefix('orch-')}, made at launch")


def parent(choices: Choices) -> Text:
    return Text.of("projects/", choices.project, f"/locations/{choices.zone}")


def resource(choices: Choices, name: str) -> Text:
    """What to delete to end the slice, with the query that this needs."""
    if choices.path.kind == "node":
        return Text.of(parent(choices), f"/nodes/{name}")
    return Text.of(parent(choices), f"/queuedResources/{name}?force=true")


def labels_of(spec: SliceSpec) -> dict[str, Text]:
    """The spec's labels, and its token in any case: by it a later look knows whose it is."""
    return to_google({**dict(spec.labels), INTENT: spec.token}.items())


def metadata(spec: SliceSpec, choices: Choices) -> dict[str, Text]:
    """What the hosts read at their start. Only the entries of startup.entries() are secret."""
    hosts = choices.slices * choices.hosts_per_slice
    login = {"enable-oslogin": Text.of("TRUE")}
    if not choices.oslogin:  # FALSE, or the project's setting may make the node ignore ssh-keys
        login = {"enable-oslogin": Text.of("FALSE"), "ssh-keys": Text.of(f"{startup.USER}:", USER_KEY)}
    found = login | {
        "enable-guest-attributes": Text.of("TRUE"),
        "startup-script": Text.of(startup.render_startup(choices.hosts_per_slice, hosts)),
        startup.RESOURCE: resource(choices, spec.name),
    }
    return found | {entry: Text.of(host_keys(entry)) for entry in startup.entries(hosts)}


def node(spec: SliceSpec, choices: Choices) -> dict[str, object]:
    """One node; of a multislice request, what all of its nodes are like."""
    body: dict[str, object] = {"runtimeVersion": choices.runtime_version}
    if choices.topology:
        body["acceleratorConfig"] = {
            "type": get_generation(choices.tpu.generation).api_type,
            "topology": choices.topology,
        }
    else:
        body["acceleratorType"] = choices.tpu.name
    network: dict[str, object] = {"network": choices.network}
    if choices.subnetwork:
        network["subnetwork"] = choices.subnetwork
    if not choices.internal_ips:
        network["enableExternalIps"] = True
    body["networkConfig"] = network
    if choices.service_account:
        body["serviceAccount"] = {"email": choices.service_account}
    if choices.tags:
        body["tags"] = list(choices.tags)
    if choices.secure_boot:
        body["shieldedInstanceConfig"] = {"enableSecureBoot": True}
    if choices.boot_disk_gib:
        body["bootDiskConfig"] = {"diskSizeGb": str(choices.boot_disk_gib)}  # an int64, which JSON writes as a string
    if choices.data_disks:
        body["dataDisks"] = [
            {"sourceDisk": disk.path(choices.project, choices.zone), "mode": disk.mode} for disk in choices.data_disks
        ]
    body["labels"] = labels_of(spec)
    body["metadata"] = metadata(spec, choices)
    return dict(sorted(body.items()))


def queued_resource(spec: SliceSpec, choices: Choices) -> dict[str, object]:
    """The queued resource around the node. It always has an end, so that it cannot wait and cost for ever."""
    alpha = choices.path.api == "v2alpha1"
    names: dict[str, object] = {"nodeId": spec.name}
    if choices.slices > 1:
        params = "multiNodeParams" if alpha else "multisliceParams"
        names = {params: {"nodeCount": choices.slices, "nodeIdPrefix": spec.name}}
    body: dict[str, object] = {
        "queueingPolicy": {"validUntilDuration": f"{choices.valid_seconds}s"},
        "tpu": {"nodeSpec": [{"node": node(spec, choices), "parent": parent(choices)} | names]},
    }
    if choices.spot:
        body["spot"] = {}
    if choices.tier:
        body[_TIERS[choices.tier]] = {}
    if choices.reservation:
        body["reservationName"] = reservation(choices)
    if choices.run_seconds:
        body["runDuration"] = {"maxRunDuration": f"{choices.run_seconds}s"}
    if alpha:
        body["provisioningModel"] = model(choices)
    return dict(sorted(body.items()))


def reservation(choices: Choices) -> Text:
    """Its whole path: one that is shared with this project is named so by the user."""
    if "/" in choices.reservation:
        return Text.of(choices.reservation)
    return Text.of(parent(choices), f"/reservations/{choices.reservation}")


def model(choices: Choices) -> str:
    """QueuedResource.provisioningModel of v2alpha1."""
    if choices.flex:
        return "FLEX_START"
    if choices.bound:
        return "RESERVATION_BOUND"
    return "SPOT" if choices.spot else "STANDARD"


def filled(value: object, known: Mapping[Unknown, str]) -> object:
    """A body with these unknowns replaced."""
    return _mapped(value, lambda text: fill_unknowns(text, known))


def as_json(value: object) -> Text:
    """Canonical JSON: sorted keys, no blanks. An Unknown stands inside its string."""
    if isinstance(value, Text):
        parts = [json.dumps(part)[1:-1] if isinstance(part, str) else part for part in value.parts]
        return Text.of('"', *parts, '"')
    if isinstance(value, Mapping):
        fields = sorted(cast(Mapping[str, object], value).items())
        pairs = [Text.of(json.dumps(key), ":", as_json(item)) for key, item in fields]
        return Text.of("{", Text.join(",", pairs), "}")
    if isinstance(value, list):
        return Text.of("[", Text.join(",", [as_json(item) for item in cast(list[object], value)]), "]")
    return Text.of(json.dumps(value))


def revealed(value: object) -> object:
    """Plain JSON values. Raises ValueError while a part is unknown."""
    return _mapped(value, Text.reveal)


def _mapped(value: object, change: Callable[[Text], object]) -> object:
    if isinstance(value, Text):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _mapped(item, change) for key, item in cast(Mapping[str, object], value).items()}
    if isinstance(value, list):
        return [_mapped(item, change) for item in cast(list[object], value)]
    return value
