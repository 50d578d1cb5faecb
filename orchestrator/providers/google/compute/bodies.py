"""Bodies of create requests in the field names of compute v1 (discovery document of November 2026). Pure.

Whose a group, a template or a policy is stands in its description, as JSON: they have no labels. What is known only
when it is sent (the project, our public key, the host keys) stands as an Unknown in a Text.
"""

from __future__ import annotations

from orchestrator.providers.google import body, startup
from orchestrator.providers.google.access import SLICE
from orchestrator.providers.google.body import as_json, labels_of
from orchestrator.providers.google.compute.parts import Part, Wanted
from orchestrator.providers.google.labels import CLUSTER, INSTALLATION, INTENT
from orchestrator.providers.google.options import read_options
from orchestrator.render.templates import render_template
from orchestrator.slices import SliceSpec
from orchestrator.values import Text, Unknown, to_text

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
RESERVATION_KEY = "compute.googleapis.com/reservation-name"


def instance(spec: SliceSpec, wanted: Wanted, part: Part) -> dict[str, object]:
    made = _machine(spec, wanted, part)
    made |= {"description": description(spec), "name": part.name}
    made["machineType"] = Text.of(wanted.in_zone, f"/machineTypes/{wanted.machine_type}")
    data = [disk.path(wanted.project, wanted.zone) for disk in wanted.asked.data_disks]
    made["disks"] = _disks(wanted, Text.of(wanted.in_zone, f"/diskTypes/{wanted.disk_type}"), data)
    if wanted.asked.flex:
        made["params"] = {"requestValidForDuration": {"seconds": str(wanted.wait_seconds)}}
    return dict(sorted(made.items()))


def template(spec: SliceSpec, wanted: Wanted, part: Part) -> dict[str, object]:
    """Of the instances of a group. It names machine, disk type and disks without their zone (compute v1)."""
    made = _machine(spec, wanted, part)
    made["machineType"] = wanted.machine_type
    data = [to_text(disk.name) for disk in wanted.asked.data_disks]
    made["disks"] = _disks(wanted, to_text(wanted.disk_type), data)
    return {"description": description(spec), "name": part.name, "properties": dict(sorted(made.items()))}


def policy(spec: SliceSpec, wanted: Wanted, part: Part) -> dict[str, object]:
    topology = {"acceleratorTopology": wanted.topology, "type": "HIGH_THROUGHPUT"}
    return {"description": description(spec), "name": part.name, "workloadPolicy": topology}


def group(spec: SliceSpec, wanted: Wanted, part: Part) -> dict[str, object]:
    """All of its instances are made together or none is, and none is repaired: a slice is of use only as a whole.

    Flex-start machines are asked for by a resize: such a template is refused for a group with a size.
    """
    return {
        "baseInstanceName": part.base,
        "description": description(spec),
        "instanceLifecyclePolicy": {"defaultActionOnFailure": "DO_NOTHING"},
        "instanceTemplate": Text.of(wanted.path("global"), f"/instanceTemplates/{part.name}"),
        "name": part.name,
        "resourcePolicies": {"workloadPolicy": Text.of(wanted.in_region, f"/resourcePolicies/{part.name}")},
        "targetSize": 0 if wanted.asked.flex else part.hosts,
        "targetSizePolicy": {"mode": "BULK"},
    }


def description(spec: SliceSpec) -> Text:
    """As access.owner_of reads it."""
    owner = {**dict(spec.labels), INTENT: spec.token}
    named = {key: owner[key] for key in (CLUSTER, INSTALLATION, INTENT) if key in owner}
    return as_json(named | {SLICE: to_text(spec.name)})


def labels(spec: SliceSpec) -> dict[str, Text]:
    """Of the instances; with the slice's name, which not all of them are called by."""
    return labels_of(spec) | {SLICE: to_text(spec.name)}


def metadata(spec: SliceSpec, wanted: Wanted, part: Part) -> dict[str, Text]:
    """What the hosts of a part read at their start. Only the entries of the host keys are secret."""
    shared = body.metadata(spec, wanted.asked)
    found = {key: value for key, value in shared.items() if not is_secret(key)}
    script = render_template("google/startup-instance.sh.j2", hosts=part.hosts, keys_per_entry=startup.KEYS_PER_ENTRY)
    found["startup-script"] = to_text(script)
    found[startup.RESOURCE] = Text.join(" ", [resource(wanted, one) for one in wanted.parts(spec.name)])
    return found | {entry: Text.of(host_keys(part, entry)) for entry in startup.entries(part.hosts)}


def resource(wanted: Wanted, part: Part) -> Text:
    """What to delete to end the machines of a part."""
    kind = "instanceGroupManagers" if part.grouped else "instances"
    return Text.of(wanted.in_zone, f"/{kind}/{part.name}")


def is_secret(key: str) -> bool:
    return key.startswith(f"{startup.HOST_KEYS}-")


def host_keys(part: Part, entry: str) -> Unknown:
    return Unknown(f"private keys of the hosts of {part.name}, {entry.removeprefix('orch-')}, made at launch")


def scheduling(wanted: Wanted) -> dict[str, object]:
    """What is taken, or ends, is deleted: a stopped disk costs."""
    asked = wanted.asked
    made: dict[str, object] = {} if wanted.migrates else {"onHostMaintenance": "TERMINATE"}
    if asked.spot:
        made |= {"automaticRestart": False, "preemptible": True, "provisioningModel": "SPOT"}
    elif asked.flex:
        made["provisioningModel"] = "FLEX_START"
    elif asked.bound:
        made["provisioningModel"] = "RESERVATION_BOUND"
    if wanted.run_seconds:
        made["maxRunDuration"] = {"seconds": str(wanted.run_seconds)}
    if asked.spot or asked.flex or asked.bound or wanted.run_seconds:
        made["instanceTerminationAction"] = "DELETE"
    return dict(sorted(made.items()))


def _machine(spec: SliceSpec, wanted: Wanted, part: Part) -> dict[str, object]:
    """What an instance and the properties of a template have in common."""
    asked = wanted.asked
    account: dict[str, object] = {"email": asked.service_account or "default", "scopes": [SCOPE]}
    made: dict[str, object] = {
        "labels": labels(spec),
        "metadata": {"items": [{"key": key, "value": value} for key, value in metadata(spec, wanted, part).items()]},
        "networkInterfaces": [_network(spec, wanted)],
        "scheduling": scheduling(wanted),
        "serviceAccounts": [account],
    }
    if asked.reservation:
        made["reservationAffinity"] = {
            "consumeReservationType": "SPECIFIC_RESERVATION",
            "key": RESERVATION_KEY,
            "values": [asked.reservation],
        }
    elif asked.flex:
        made["reservationAffinity"] = {"consumeReservationType": "NO_RESERVATION"}
    if asked.tags:
        made["tags"] = {"items": list(asked.tags)}
    if asked.secure_boot:
        made["shieldedInstanceConfig"] = {"enableSecureBoot": True}
    return made


def _disks(wanted: Wanted, kind: Text, data: list[Text]) -> list[object]:
    """data: the user's disks, which outlive the instance."""
    boot: dict[str, object] = {
        "autoDelete": True,
        "boot": True,
        "initializeParams": {"diskSizeGb": str(wanted.disk_gib), "diskType": kind, "sourceImage": wanted.image},
    }
    modes = [disk.mode for disk in wanted.asked.data_disks]
    kept = [{"autoDelete": False, "mode": mode, "source": one} for mode, one in zip(modes, data, strict=True)]
    return [boot, *kept]


def _network(spec: SliceSpec, wanted: Wanted) -> dict[str, object]:
    asked = wanted.asked
    made: dict[str, object] = {}
    if not asked.internal_ips:
        made["accessConfigs"] = [{"name": "external-nat", "type": "ONE_TO_ONE_NAT"}]
    if not asked.subnetwork or read_options(spec.candidate).network:  # a subnetwork says itself which network it is in
        made["network"] = _path(asked.network, wanted.path("global/networks/"))
    if asked.subnetwork:
        made["subnetwork"] = _path(asked.subnetwork, Text.of(wanted.in_region, "/subnetworks/"))
    return made


def _path(word: str, folder: Text) -> Text:
    """A name in its folder; what is a path already stays."""
    return to_text(word) if "/" in word else Text.of(folder, word)
