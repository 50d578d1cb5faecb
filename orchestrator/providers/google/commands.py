"""The same requests as command lines that a person can paste: gcloud where it can say them, else curl. Pure.

What gcloud can say is that of version 528 (by experiment against a local server, November 2026; tests/google).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.providers.google import body, startup
from orchestrator.providers.google.choices import ANY_RESERVATION, MOST_HOSTS, Choices
from orchestrator.slices import SliceSpec
from orchestrator.values import Text, Unknown, to_text

SERVER = "https://tpu.googleapis.com"
_GCLOUD_TYPES = frozenset({"v2", "v3", "v4"})  # of --type in the released commands; the others only in alpha
_CURL = """\
# By curl, because {why}.
method=$1 url=$2 body=$3 at=0
shift 3
for file in "$@"; do body=${{body/"@orch-host-keys-$at@"/"$(cat -- "$file")"}} at=$((at + 1)); done
printf %s "$body" | curl -sS -f -X "$method" -H "Authorization: Bearer $(gcloud auth print-access-token)" \\
  -H "Content-Type: application/json" -d @- "$url"
"""


def keys_file(entry: str) -> Unknown:
    """Host keys never stand on a command line, so they come from a file."""
    return Unknown(f"file with {body.host_keys(entry).what}")


def create(spec: SliceSpec, choices: Choices, target: Text, request: Mapping[str, object]) -> tuple[Text, ...]:
    if why := beyond_gcloud(choices):
        return _curl("POST", choices, target, request, why)
    words = _node_words(spec, choices) if choices.path.kind == "node" else _queued_words(spec, choices)
    return tuple(to_text(word) for word in (*words, *_place(choices), *_machine_words(spec, choices)))


def on_node(verb: str, choices: Choices, name: str) -> tuple[Text, ...]:
    """delete, stop or start a node."""
    quiet = ("--quiet",) if verb == "delete" else ()
    words = ("gcloud", "compute", "tpus", "tpu-vm", verb, name, *quiet, *_place(choices))
    return tuple(to_text(word) for word in words)


def delete_queued(choices: Choices, name: str) -> tuple[Text, ...]:
    """Its nodes go with it."""
    words = ("gcloud", "compute", "tpus", "queued-resources", "delete", name, "--force", "--quiet", *_place(choices))
    return tuple(to_text(word) for word in words)


def beyond_gcloud(choices: Choices) -> str:
    """What gcloud 528 cannot say of this request, "" when it can say all."""
    if choices.boot_disk_gib:
        return "no command of gcloud 528 has a flag for the size of the boot disk"
    if choices.path.api != "v2":
        return "gcloud 528 sends the tier spot or the model SPOT, never both" if choices.spot else ""
    if choices.reservation not in ("", ANY_RESERVATION):
        return "the released gcloud takes any reservation (--reserved) and has no flag to name one"
    if choices.topology and choices.tpu.generation not in _GCLOUD_TYPES:
        return f"the released gcloud knows no topology of {choices.tpu.generation}"
    return ""


def _node_words(spec: SliceSpec, choices: Choices) -> tuple[str | Text, ...]:
    return ("gcloud", "compute", "tpus", "tpu-vm", "create", spec.name, f"--version={choices.runtime_version}")


def _queued_words(spec: SliceSpec, choices: Choices) -> tuple[str | Text, ...]:
    alpha = choices.path.api == "v2alpha1"
    track = ("alpha",) if alpha else ()
    words: list[str | Text] = ["gcloud", *track, "compute", "tpus", "queued-resources", "create", spec.name]
    words.append(f"--runtime-version={choices.runtime_version}")
    if choices.slices > 1:
        words += [f"--node-count={choices.slices}", f"--node-prefix={spec.name}"]
    else:
        words.append(f"--node-id={spec.name}")
    words.append(f"--valid-until-duration={choices.valid_seconds}s")
    if choices.tier:
        words.append(f"--{choices.tier}")
    return (*words, *(_alpha_market(choices) if alpha else _market(choices)))


def _market(choices: Choices) -> list[str | Text]:
    words: list[str | Text] = ["--spot"] if choices.spot else []
    return [*words, "--reserved"] if choices.reservation else words


def _alpha_market(choices: Choices) -> list[str | Text]:
    words: list[str | Text] = [f"--provisioning-model={body.model(choices).lower().replace('_', '-')}"]
    if choices.run_seconds:
        words.append(f"--max-run-duration={choices.run_seconds}s")
    if choices.reservation:
        words.append(f"--reservation={choices.reservation}")
    return words


def _place(choices: Choices) -> tuple[str | Text, ...]:
    project = (Text.of("--project=", choices.project),) if choices.project.is_known else ()
    return (f"--zone={choices.zone}", *project)


def _machine_words(spec: SliceSpec, choices: Choices) -> tuple[str | Text, ...]:
    words: list[str | Text] = []
    if choices.topology:
        words += [f"--type={choices.tpu.name.partition('-')[0]}", f"--topology={choices.topology}"]
    else:
        words.append(f"--accelerator-type={choices.tpu.name}")
    words.append(f"--network={choices.network}")
    if choices.subnetwork:
        words.append(f"--subnetwork={choices.subnetwork}")
    if choices.internal_ips:
        words.append("--internal-ips")
    if choices.service_account:
        words.append(f"--service-account={choices.service_account}")
    if choices.tags:
        words.append(f"--tags={','.join(choices.tags)}")
    if choices.secure_boot:
        words.append("--shielded-secure-boot")
    for disk in choices.data_disks:
        mode = "read-only" if disk.read_only else "read-write"
        words.append(Text.of("--data-disk=source=", disk.path(choices.project, choices.zone), f",mode={mode}"))
    words.append(_pairs("--labels=", body.labels_of(spec), ","))  # no label may hold a comma
    every = body.metadata(spec, choices)
    words.append(_pairs("--metadata=", {key: value for key, value in every.items() if not _is_secret(key)}))
    words.append(_pairs("--metadata-from-file=", {key: to_text(keys_file(key)) for key in every if _is_secret(key)}))
    return tuple(word for word in words if word)


def _is_secret(key: str) -> bool:
    return key.startswith(f"{startup.HOST_KEYS}-")


def _pairs(flag: str, pairs: Mapping[str, Text], mark: str = "") -> Text:
    """`flag` with key=value pairs, with `mark` between them, else by gcloud's own escape (gcloud topic escaping)."""
    if not pairs:
        return Text.of()
    whole = "".join(value.preview() for value in pairs.values())
    mark = mark or next(colons for colons in _marks() if colons not in whole)
    start = flag if mark == "," else f"{flag}^{mark}^"
    return Text.of(start, Text.join(mark, [Text.of(f"{key}=", value) for key, value in pairs.items()]))


def _marks() -> Sequence[str]:
    return [":" * length for length in range(2, 64)]


def _curl(method: str, choices: Choices, target: Text, request: Mapping[str, object], why: str) -> tuple[Text, ...]:
    """A bash program with method, address and body as its words; host keys are put in from files, not as words."""
    url = Text.of(f"{SERVER}/{choices.path.api}/", target)
    marks = {body.host_keys(entry): f"@{entry}@" for entry in startup.entries(MOST_HOSTS)}
    whole = body.as_json(request)
    used = [unknown for unknown in marks if unknown in whole.parts]
    files = [to_text(keys_file(marks[unknown].strip("@"))) for unknown in used]
    words = ("bash", "-c", _CURL.format(why=why), "curl", method, url, whole.fill(marks))
    return (*(to_text(word) for word in words), *files)
