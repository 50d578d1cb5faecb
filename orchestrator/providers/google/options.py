"""The options of Google Cloud, each declared once (orchestrator/options.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from orchestrator.options import Allowed, DriverOptions, Refused, arg, decode_options, derived, setting
from orchestrator.slices import Candidate

LONGEST_RUN_HOURS = 168  # seven days ("Request Cloud TPUs using Flex-start", 2025); held for every run duration
LONGEST_WAIT_HOURS = 24 * 365
Tier: TypeAlias = Literal["", "guaranteed", "best-effort"]
_NO_GVNIC = Refused("orch requests the usual network interface")


def _word(step: str) -> Allowed:
    return Allowed(pattern=r"[A-Za-z0-9@._:/-]+", why="letters, digits, and . : / @ _ - are allowed", step=step)


def _hours(key: str, most: int) -> Allowed:
    return Allowed(least=0.01, most=most, why=f"a number of hours above 0, at most {most}", step=f"{key}: 6")


@dataclass(frozen=True, slots=True, kw_only=True)
class GoogleOptions:
    """What a task and the configuration ask of Google. A text is "" where the provider's default holds.

    The order is that of the details of candidates on record.
    """

    project: str = setting(
        "", "project that pays", "a project id", config=True,
        flag="ID", flag_help="Project instead of the configured one",
    )  # fmt: skip
    impersonate: str = setting(
        "", "service account that is impersonated for every call", "an e-mail address", config=True, identity=True,
        allowed=Allowed(
            pattern=r"[a-z0-9][a-z0-9.-]*@[a-z0-9.-]+[.]gserviceaccount[.]com",
            why="it is the e-mail address of a service account", step="gcloud iam service-accounts list",
        ),
        flag="EMAIL", flag_help="Service account to impersonate instead of the configured one",
        local_use="this service account is impersonated with the Google credentials of this computer",
    )  # fmt: skip
    network: str = setting(
        "", "network of the machines", key="vpc_name", dialect=True, config=True, unset="default",
        allowed=_word("gcloud compute networks list"),
    )  # fmt: skip
    subnet_names: tuple[str, ...] = setting(
        (), "subnetworks, the first is used", dialect=True, config=True, single=True, carried=False
    )
    subnetwork: str = derived("", allowed=_word("gcloud compute networks subnets list"))
    service_account: str = setting(
        "", "service account of the machines", "an e-mail address", config=True,
        allowed=_word("gcloud iam service-accounts list"),
        flag="EMAIL", flag_help="Service account of the hosts, instead of the project's default",
    )  # fmt: skip
    internal_ips: bool = setting(False, "give the machines no external address", config=True)
    tags: tuple[str, ...] = setting((), "network tags of the machines", "a network tag")
    access: Literal["", "external", "internal", "iap", "jump"] = setting(
        "",
        "SSH access to the machines",
        config=True,
        allowed=Allowed(why="there are external, internal, iap, jump", step="access: external"),
    )
    jump: str = setting("", "jump host, for access: jump", "user@host:port", config=True, hops=True)
    firewall: bool = setting(
        True, "create a rule that lets SSH in", config=True,
        allowed=Allowed(why="expected auto (orch makes a rule) or none", step="firewall: auto"),
    )  # fmt: skip
    ssh_cidr: str = setting(
        "", "who may reach port 22; your own address if absent", "a range such as 203.0.113.7/32", config=True
    )
    oslogin: bool = setting(False, "log in by OS Login instead of a key in metadata", config=True)
    runtime_version: str = arg(
        "", "TPU software version; by generation if absent", "text such as v2-alpha-tpuv5-lite", dialect=True,
        allowed=_word("remove it, and orch chooses one"),
    )  # fmt: skip
    tpu_vm: bool = arg(True, "must be true: only TPU VMs exist", dialect=True, carried=False)
    topology: str = arg("", "chips along each side", "text such as 4x4 or 2x2x2")
    queued: bool = arg(
        False, "ask through a queued resource, which waits for capacity", key="gcp_queued_resource", dialect=True
    )
    provisioning: Literal["", "guaranteed", "best-effort", "flex-start", "reservation-bound"] = arg(
        "", "how to get capacity other than on demand or spot", carried=False
    )
    reservation: str = arg("", "take it from there", "a reservation's name or id, or - for any", carried=False)
    tier: Literal["", "guaranteed", "best-effort"] = derived(
        "", allowed=Allowed(why="a queued resource is guaranteed or best-effort", step="tier: guaranteed")
    )
    reservation_bound: bool = derived(False)
    max_run_hours: float | None = arg(
        None, "Google ends the slice then; flex-start needs it", allowed=_hours("max_run_hours", LONGEST_RUN_HOURS)
    )
    valid_hours: float | None = arg(
        None, "how long a queued request may wait for capacity", allowed=_hours("valid_hours", LONGEST_WAIT_HOURS)
    )
    data_disks: tuple[str, ...] = arg(
        (), "disks attached to every host", "a disk, :ro to read only",
        local_use="this disk of the account is attached to the machines",
    )  # fmt: skip
    secure_boot: bool = arg(False, "verify the boot of the hosts")
    api: Literal["", "tpu", "compute"] = arg(
        "", "force the Cloud TPU API or Compute Engine",
        allowed=Allowed(why="Google's TPUs have two: tpu and compute", step="remove it, and orch chooses"),
    )  # fmt: skip


OPTIONS = DriverOptions(
    kind=GoogleOptions,
    title="Google Cloud",
    owner="Google machines have",
    dialect=True,
    refused_settings={
        "managed_instance_group": Refused("slices are created one by one"),
        "enable_gvnic": _NO_GVNIC,
        "enable_gpu_direct": _NO_GVNIC,
        "placement_policy": Refused("orch requests no placement policy; Google places a TPU slice as a whole"),
    },
    refused_args={
        "tpu_name": Refused(
            "orch names what it creates after the cluster, so that it can find it again",
            "remove it; `name` names the task",
        )
    },
)


def read_options(candidate: Candidate) -> GoogleOptions:
    """Return the options of a candidate.

    Raises:
        UserError: There is no such option, or no such value of it.
    """
    return cast(GoogleOptions, decode_options(GoogleOptions, OPTIONS.owner, candidate.details))
