"""Planned requests against the library's own messages, and against what the real gcloud sends for the same command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import tpu_v2
from google.protobuf import json_format
from google_cases import PROJECT, filled, keys, matrix
from google_gcloud import Gcloud, gcloud_to
from google_recorder import Recorder, recorder
from support.gcloud import find_gcloud
from support.proof import report
from support.served import Seen

from orch_fronts.google import documents
from orchestrator.providers.google import body, commands, requests
from orchestrator.providers.google.choices import PROJECT as PROJECT_UNKNOWN
from orchestrator.providers.google.client import TpuApi
from orchestrator.providers.google.planner import PLANNER
from orchestrator.providers.google.session import Session
from orchestrator.providers.google.startup import entries, pack_keys
from orchestrator.slices import Request, SliceKeys, SliceSpec
from orchestrator.values import Text

CASES = matrix()
BY_GCLOUD = {name: spec for name, spec in CASES.items() if "[curl]" not in name}
BY_CURL = {name: spec for name, spec in CASES.items() if "[curl]" in name}
RECORDED = Path(__file__).with_name("data") / "gcloud-528.json"
KEYS = keys(2)
WHERE = find_gcloud()
TIERS = ("spot", "guaranteed", "bestEffort")


def _keys(spec: SliceSpec) -> SliceKeys:
    """Two real key pairs, repeated: making thousands would only take time."""
    hosts = spec.candidate.hosts
    many = (KEYS.host_private * hosts)[:hosts]
    return SliceKeys(
        user_public=KEYS.user_public,
        identity_file=KEYS.identity_file,
        known_hosts=KEYS.known_hosts,
        host_private=many,
        host_public=(KEYS.host_public * hosts)[:hosts],
    )


@pytest.fixture(scope="module")
def server() -> Iterator[Recorder]:
    with recorder() as notes:
        yield notes


@pytest.fixture(scope="module")
def api(server: Recorder) -> TpuApi:
    options = {"api_endpoint": server.url}
    client = tpu_v2.TpuClient(credentials=AnonymousCredentials(), transport="rest", client_options=options)
    return TpuApi(client, Session(AnonymousCredentials(), PROJECT, server.url))


@pytest.fixture(scope="module")
def gcloud(server: Recorder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gcloud | None]:
    if WHERE is None:
        yield None
        return
    with gcloud_to(server.url, tmp_path_factory.mktemp("gcloud"), PROJECT, WHERE) as process:
        yield process


def message(seen: Seen) -> Any:
    """The body without parts that hold nothing; an empty tier says something and stays.

    Of version 2 it is the library's own message. No protobuf type has all of 2alpha1: there the discovery document
    checks the body, and its JSON is compared.
    """
    kind = "QueuedResource" if "/queuedResources" in seen.path else "Node"
    if seen.path.startswith("/v2alpha1/"):
        return _without_empty(documents.check("v2alpha1", kind, seen.body, "body"))
    found = getattr(tpu_v2, kind)()
    json_format.ParseDict(seen.body, found._pb)
    _drop_empty(found._pb)
    return found


def _without_empty(value: Any) -> Any:
    if not isinstance(value, dict):
        return [_without_empty(one) for one in value] if isinstance(value, list) else value
    parts = {key: part if key in ("labels", "metadata") else _without_empty(part) for key, part in value.items()}
    return {key: part for key, part in parts.items() if key in TIERS or part not in ({}, [], "", False)}


def _drop_empty(part: Any) -> None:
    for field, value in part.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for one in value if field.is_repeated else [value]:
            _drop_empty(one)
        if not field.is_repeated and not value.ListFields() and field.name not in TIERS:
            part.ClearField(field.name)


def sent(api: TpuApi, server: Recorder, spec: SliceSpec) -> Seen:
    server.take()
    api.create(filled(spec, _keys(spec)))
    (seen,) = server.take()
    return seen


def message_of(request: Request) -> Any:
    """The library's message of a request to version 2."""
    return requests.create_node(request) if "/nodes?" in request.target else requests.create_queued_resource(request)


def words_of(request: Request, spec: SliceSpec, folder: Path) -> list[str]:
    """The previewed command line with what is known only later: our key, and files with the host keys."""
    known = {body.USER_KEY: _keys(spec).user_public, PROJECT_UNKNOWN: PROJECT}
    hosts = spec.candidate.hosts
    for entry, packed in zip(entries(hosts), pack_keys(_keys(spec).host_private), strict=True):
        file = folder / entry
        file.write_text(packed)
        known[commands.keys_file(entry)] = str(file)
    return [word.fill(known).reveal() for word in request.command]


@pytest.mark.parametrize("name", CASES)
def test_every_planned_create_is_a_message_of_the_api(name: str) -> None:
    request = filled(CASES[name], _keys(CASES[name]))
    plain = body.revealed(request.body)
    assert json.loads(body.as_json(request.body).reveal()) == plain
    node = "/nodes?" in request.target
    if request.service == "tpu.v2alpha1":
        assert documents.check("v2alpha1", "Node" if node else "QueuedResource", plain, "body")
        return
    made = message_of(request)
    part = made.node if node else made.queued_resource
    assert json_format.MessageToDict(part._pb) == plain, "nothing is lost and nothing is added"


@pytest.mark.parametrize("name", CASES)
def test_what_is_previewed_is_what_is_sent(name: str, api: TpuApi, server: Recorder) -> None:
    request = filled(CASES[name], _keys(CASES[name]))
    ours = sent(api, server, CASES[name])
    path, _, query = request.target.partition("?")
    assert (ours.method, ours.path) == (request.method, f"/{request.service.removeprefix('tpu.')}/{path}")
    assert ours.query == dict(pair.split("=") for pair in query.split("&"))
    previewed = Seen(ours.method, ours.path, ours.query, body.revealed(request.body))  # type: ignore[arg-type]  # a dict
    assert message(previewed) == message(ours)


def test_a_field_that_the_api_does_not_have_is_refused() -> None:
    spec = CASES["v2-8, on demand"]
    request = filled(spec, _keys(spec))
    wrong = Request(
        service=request.service, method=request.method, target=request.target, body={**request.body, "numberOfHosts": 4}
    )
    with pytest.raises(ValueError, match="numberOfHosts"):
        message_of(wrong)


def test_nothing_unknown_is_sent() -> None:
    spec = CASES["node with no project"]
    with pytest.raises(ValueError, match="unknown"):
        message_of(PLANNER.create_request(spec))


def _count(how: str) -> None:
    report(
        "what `gcloud` 528 and curl send to the TPU API for the previewed command, against what orch sends", {how: 1}
    )


@pytest.mark.parametrize("name", BY_GCLOUD)
def test_previewed_gcloud_command_sends_what_we_send(
    name: str,
    api: TpuApi,
    server: Recorder,
    gcloud: Gcloud | None,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    spec = BY_GCLOUD[name]
    record_property("compared with", "recorded bodies" if gcloud is None else "the real gcloud")
    ours = sent(api, server, spec)
    if gcloud is None:
        theirs = _recorded(name)
        _blank_keys(ours)
    else:
        program, *words = words_of(PLANNER.create_request(spec), spec, tmp_path)
        assert program == "gcloud"
        gcloud.run([*words, "--async"])  # changes only how long gcloud waits afterwards
        (theirs,) = server.take()
        _record(name, theirs)
    _compare(ours, theirs)
    _count("gcloud's requests as recorded" if gcloud is None else "gcloud's requests")


@pytest.mark.parametrize("name", BY_CURL)
def test_previewed_curl_command_sends_what_we_send(name: str, api: TpuApi, server: Recorder, tmp_path: Path) -> None:
    spec = BY_CURL[name]
    ours = sent(api, server, spec)
    words = words_of(PLANNER.create_request(spec), spec, tmp_path)
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    login = bin_folder / "gcloud"
    login.write_text("#!/bin/sh\necho no-token\n")
    login.chmod(0o700)
    local = [word.replace("https://tpu.googleapis.com/", f"{server.url}/") for word in words]
    environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    subprocess.run(local, env=environment, check=True, timeout=30, capture_output=True)
    (theirs,) = server.take()
    assert theirs.query == ours.query
    _compare(ours, theirs)
    _count("curl's requests")
    assert not any(line in word for word in words for line in pack_keys(_keys(spec).host_private)), "no key is a word"


def _compare(ours: Seen, theirs: Seen) -> None:
    """The request id is ours alone: gcloud has no flag for it."""
    assert (theirs.method, theirs.path) == (ours.method, ours.path)
    assert theirs.query == {key: value for key, value in ours.query.items() if key != "requestId"} | (
        {"requestId": ours.query["requestId"]} if "requestId" in theirs.query else {}
    )
    assert message(theirs) == message(ours)


@pytest.mark.parametrize("name", ["v4-8, on demand", "v4-8, spot", "v4-8, two slices"])
def test_previewed_end_is_what_we_send(name: str, api: TpuApi, server: Recorder, gcloud: Gcloud | None) -> None:
    if gcloud is None:
        pytest.skip("there is no gcloud here")
    request = PLANNER.end_request("demo-1", CASES[name].candidate)
    path = request.target.partition("?")[0]
    server.take()
    (api.delete_node if "/nodes/" in path else api.delete_queued)(path)
    (ours,) = server.take()
    gcloud.run([*[word.reveal() for word in request.command[1:]], "--async"])
    (theirs,) = server.take()
    assert {key: value.lower() for key, value in theirs.query.items()} == ours.query, "gcloud writes True, we true"
    assert (theirs.method, theirs.path) == (ours.method, ours.path)
    assert (ours.method, f"/v2/{path}") == (request.method, ours.path)


@pytest.mark.parametrize("verb", ["stop", "start"])
def test_previewed_stop_and_start_are_what_we_send(
    verb: str, api: TpuApi, server: Recorder, gcloud: Gcloud | None
) -> None:
    if gcloud is None:
        pytest.skip("there is no gcloud here")
    make = PLANNER.stop_request if verb == "stop" else PLANNER.start_request
    request = make("demo-1", CASES["v4-8, on demand"].candidate)
    server.take()
    (api.stop if verb == "stop" else api.start)(request.target.rpartition(":")[0])
    (ours,) = server.take()
    gcloud.run([*[word.reveal() for word in request.command[1:]], "--async"])
    (theirs,) = server.take()
    assert (theirs.method, theirs.path, theirs.query) == (ours.method, ours.path, ours.query)
    assert ours.path == f"/v2/{request.target}"
    assert theirs.body == {}


def test_the_comparison_sees_a_difference(api: TpuApi, server: Recorder, tmp_path: Path, gcloud: Gcloud | None) -> None:
    ours = sent(api, server, CASES["v4-8, spot"])
    theirs = sent(api, server, CASES["v4-8, any reservation"])
    with pytest.raises(AssertionError):
        _compare(ours, theirs)


def test_the_matrix_is_as_large_as_promised() -> None:
    assert len(BY_GCLOUD) >= 80
    assert len(BY_CURL) >= 14
    versions = {PLANNER.create_request(spec).service for spec in CASES.values()}
    assert versions == {"tpu.v2", "tpu.v2alpha1"}
    assert {*json.loads(RECORDED.read_text())} == {*BY_GCLOUD}, "what was recorded is the whole matrix"


@pytest.mark.parametrize("name", BY_CURL)
def test_a_curl_form_says_what_gcloud_cannot(name: str) -> None:
    command = [word.preview() for word in PLANNER.create_request(BY_CURL[name]).command]
    assert command[:2] == ["bash", "-c"]
    assert command[2].startswith("# By curl, because ")
    assert "gcloud" in command[2].splitlines()[0]


def _record(name: str, seen: Seen) -> None:
    """With ORCH_RECORD_GCLOUD=1 what gcloud sent is kept, for machines without it. Host keys are not."""
    if os.environ.get("ORCH_RECORD_GCLOUD") != "1":
        return
    kept = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    copy = Seen(seen.method, seen.path, seen.query, json.loads(json.dumps(seen.body)))
    _blank_keys(copy)
    kept[name] = {"method": copy.method, "path": copy.path, "query": copy.query, "body": copy.body}
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


def _recorded(name: str) -> Seen:
    return Seen(**json.loads(RECORDED.read_text())[name])


def _blank_keys(seen: Seen) -> None:
    """What is made anew in every run, and the script, which has tests of its own."""
    node = seen.body["tpu"]["nodeSpec"][0]["node"] if "tpu" in seen.body else seen.body
    for key in node["metadata"]:
        if key.startswith("orch-host-keys-") or key == "startup-script":
            node["metadata"][key] = "…"


def test_bash_can_read_every_previewed_command(tmp_path: Path) -> None:
    """Quoted for the shell and read again, each word is what it was."""
    import shlex

    spec = CASES["spot with all of them"]
    words = words_of(PLANNER.create_request(spec), spec, tmp_path)
    assert shutil.which("bash")
    script = "printf '%s\\0' " + " ".join(shlex.quote(word) for word in words)
    read = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=10).stdout
    assert read.split("\0")[:-1] == words


def test_unknowns_in_a_preview_are_named_and_no_key_is_in_it() -> None:
    request = PLANNER.create_request(CASES["node with no project"])
    shown = "\n".join([request.target, body.as_json(request.body).preview(), *(w.preview() for w in request.command)])
    assert "project of your gcloud configuration" in shown
    assert "PRIVATE KEY-----" not in shown.replace(_script(), "").replace(json.dumps(_script())[1:-1], "")
    assert not any(word.preview().startswith("--project") for word in request.command), "gcloud takes its own"


def _script() -> str:
    found = PLANNER.create_request(CASES["node with no project"]).body["metadata"]
    assert isinstance(found, dict)
    script: Text = found["startup-script"]
    return script.reveal()
