"""The same requests as command lines that a person can paste: gcloud where it can say them, else curl. Pure.

What gcloud can say is that of version 528 (by experiment against a local server, November 2026; tests/google_compute).
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.providers.google import startup
from orchestrator.providers.google.body import as_json
from orchestrator.providers.google.compute import bodies
from orchestrator.providers.google.compute.parts import Part, Wanted
from orchestrator.providers.google.options import read_options
from orchestrator.slices import SliceSpec
from orchestrator.values import Text, Unknown, to_text

SERVER = "https://compute.googleapis.com/compute/v1"
_CURL = """\
# By curl, because {why}.
method=$1 url=$2 body=$3 at=0
shift 3
for file in "$@"; do body=${{body/"@orch-host-keys-$at@"/"$(cat -- "$file")"}} at=$((at + 1)); done
printf %s "$body" | curl -sS -f -X "$method" -H "Authorization: Bearer $(gcloud auth print-access-token)" \\
  -H "Content-Type: application/json" -d @- "$url"
"""
NO_WAIT = "the released gcloud 528 cannot say FLEX_START, nor how long to wait for it"
NO_BULK = "the released gcloud 528 has no flag for the mode BULK, without which a topology is refused"


def keys_file(part: Part, entry: str) -> Unknown:
    """Host keys never stand on a command line, so they come from a file."""
    return Unknown(f"file with {bodies.host_keys(part, entry).what}")


def instance(spec: SliceSpec, wanted: Wanted, part: Part, target: Text, body: Mapping[str, object]) -> tuple[Text, ...]:
    if wanted.asked.flex:
        return _curl(target, body, NO_WAIT, part)
    words = ("gcloud", "compute", "instances", "create", part.name, "--async", f"--zone={wanted.zone}")
    return _texts(*words, *_project(wanted), *_machine(spec, wanted, part))


def template(spec: SliceSpec, wanted: Wanted, part: Part) -> tuple[Text, ...]:
    track = ("beta",) if wanted.asked.flex else ()
    words = ("gcloud", *track, "compute", "instance-templates", "create", part.name)
    return _texts(*words, *_project(wanted), *_machine(spec, wanted, part))


def policy(spec: SliceSpec, wanted: Wanted, part: Part) -> tuple[Text, ...]:
    words = ("gcloud", "compute", "resource-policies", "create", "workload-policy", part.name)
    shape = ("--type=HIGH_THROUGHPUT", f"--accelerator-topology={wanted.topology}")
    whose = Text.of("--description=", bodies.description(spec))
    return _texts(*words, f"--region={wanted.region}", *_project(wanted), *shape, whose)


def group(target: Text, body: Mapping[str, object], part: Part) -> tuple[Text, ...]:
    return _curl(target, body, NO_BULK, part)


def resize(wanted: Wanted, part: Part) -> tuple[Text, ...]:
    words = ("gcloud", "compute", "instance-groups", "managed", "resize", part.name, f"--size={part.hosts}")
    return _texts(*words, f"--zone={wanted.zone}", *_project(wanted))


def delete(wanted: Wanted, kind: str, name: str) -> tuple[Text, ...]:
    """kind: instances, instanceGroupManagers, instanceTemplates or resourcePolicies."""
    words, place = {
        "instances": (("instances",), f"--zone={wanted.zone}"),
        "instanceGroupManagers": (("instance-groups", "managed"), f"--zone={wanted.zone}"),
        "instanceTemplates": (("instance-templates",), ""),
        "resourcePolicies": (("resource-policies",), f"--region={wanted.region}"),
    }[kind]
    return _texts("gcloud", "compute", *words, "delete", name, "--quiet", place, *_project(wanted))


def power(wanted: Wanted, verb: str, name: str) -> tuple[Text, ...]:
    words = ("gcloud", "compute", "instances", verb, name, "--async", f"--zone={wanted.zone}")
    return _texts(*words, *_project(wanted))


def _texts(*words: str | Text) -> tuple[Text, ...]:
    return tuple(to_text(word) for word in words if word)


def _project(wanted: Wanted) -> tuple[Text, ...]:
    return (Text.of("--project=", wanted.project),) if wanted.project.is_known else ()


def _machine(spec: SliceSpec, wanted: Wanted, part: Part) -> tuple[str | Text, ...]:
    """What instances and templates have in common."""
    asked = wanted.asked
    words: list[str | Text] = [
        f"--machine-type={wanted.machine_type}",
        f"--image={wanted.image}",
        f"--boot-disk-size={wanted.disk_gib}GB",
        f"--boot-disk-type={wanted.disk_type}",
        *(_data_disk(wanted, at) for at in range(len(asked.data_disks))),
        *_network(spec, wanted, part),
        *_schedule(wanted),
    ]
    if asked.service_account:
        words.append(f"--service-account={asked.service_account}")
    words.append(f"--scopes={bodies.SCOPE}")
    if asked.tags:
        words.append(f"--tags={','.join(asked.tags)}")
    if asked.secure_boot:
        words.append("--shielded-secure-boot")
    words.append(Text.of("--description=", bodies.description(spec)))
    words.append(_pairs("--labels=", bodies.labels(spec), ","))  # no label may hold a comma
    every = bodies.metadata(spec, wanted, part)
    words.append(_pairs("--metadata=", {key: value for key, value in every.items() if not bodies.is_secret(key)}))
    files = {key: to_text(keys_file(part, key)) for key in every if bodies.is_secret(key)}
    words.append(_pairs("--metadata-from-file=", files))
    return tuple(words)


def _schedule(wanted: Wanted) -> list[str]:
    made = bodies.scheduling(wanted)
    words = [] if wanted.migrates else ["--maintenance-policy=TERMINATE"]
    if "provisioningModel" in made:
        words.append(f"--provisioning-model={made['provisioningModel']}")
    if wanted.run_seconds:
        words.append(f"--max-run-duration={wanted.run_seconds}s")
    if "instanceTerminationAction" in made:
        words.append("--instance-termination-action=DELETE")
    if wanted.asked.reservation:
        words += ["--reservation-affinity=specific", f"--reservation={wanted.asked.reservation}"]
    elif wanted.asked.flex:
        words.append("--reservation-affinity=none")
    return words


def _network(spec: SliceSpec, wanted: Wanted, part: Part) -> list[str]:
    asked = wanted.asked
    words: list[str] = []
    if not asked.subnetwork or read_options(spec.candidate).network:
        words.append(f"--network={asked.network}")
    if asked.subnetwork:
        words.append(f"--subnet={asked.subnetwork}")
        if part.grouped:
            words.append(f"--region={wanted.region}")  # a template is in no zone
    if asked.internal_ips:
        words.append("--no-address")
    return words


def _data_disk(wanted: Wanted, at: int) -> Text:
    disk = wanted.asked.data_disks[at]
    name = disk.name if "/" not in disk.name else disk.path(wanted.project, wanted.zone)
    return Text.of("--disk=name=", name, f",mode={'ro' if disk.read_only else 'rw'}")


def _pairs(flag: str, pairs: Mapping[str, Text], mark: str = "") -> Text:
    """`flag` with key=value pairs, with `mark` between them, else by gcloud's own escape (gcloud topic escaping)."""
    if not pairs:
        return Text.of()
    whole = "".join(value.preview() for value in pairs.values())
    mark = mark or next(mark for mark in (":" * length for length in range(2, 64)) if mark not in whole)
    start = flag if mark == "," else f"{flag}^{mark}^"
    return Text.of(start, Text.join(mark, [Text.of(f"{key}=", value) for key, value in pairs.items()]))


def _curl(target: Text, body: Mapping[str, object], why: str, part: Part) -> tuple[Text, ...]:
    """A bash program with method, address and body as its words; host keys are put in from files, not as words."""
    url = Text.of(f"{SERVER}/", target)
    whole = as_json(body)
    marks = {bodies.host_keys(part, entry): f"@{entry}@" for entry in startup.entries(part.hosts)}
    files = [to_text(keys_file(part, mark.strip("@"))) for unknown, mark in marks.items() if unknown in whole.parts]
    words = ("bash", "-c", _CURL.format(why=why), "curl", "POST", url, whole.fill(marks))
    return (*_texts(*words), *files)
