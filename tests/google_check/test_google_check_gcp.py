"""`orch check gcp` against a simulated project: what it finds, what it says to do, and that it only reads."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from google_check_support import GOOD, OTHER, PROJECT, ZONE, simulated

import orchestrator.cli
from orch_fronts.google.grants import Bucket, Grants, Limit
from orch_fronts.google.server import Front
from orch_fronts.google.status import PERMISSION_DENIED, Refusal
from orchestrator.catalog import tpu
from orchestrator.catalog.tpu import list_generations
from orchestrator.providers.google.check_role import ACT_AS, BUCKET_OBJECTS, role_permissions

Orch = Callable[..., Any]
ALL = ("check", "gcp", "--zone", ZONE, "--accelerators", "v5litepod-16", "--bucket", "gs://runs", "-o", "json")
SERVING = Limit("tpu-v5s-litepod-serving", 9999)
SCHEMA = Path(orchestrator.cli.__file__).parent / "data" / "check.schema.json"


def without(*permissions: str) -> Grants:
    return replace(GOOD, permissions=GOOD.permissions - set(permissions))


def disabled(*apis: str) -> Grants:
    return replace(GOOD, apis=GOOD.apis - {f"{api}.googleapis.com" for api in apis})


def test_a_project_as_it_should_be(orch: Orch, monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated(monkeypatch):
        said = orch(*ALL)
    assert said.status == 0, said
    found = said.findings()
    assert list(found) == [
        "credentials", "project", "apis", "permissions", "zones", "quota", "ssh", "bucket", "act-as",
    ]  # fmt: skip
    assert {one["verdict"] for one in found.values()} == {"ok"}
    assert {one["fix"] for one in found.values()} == {None}
    assert f"all {len(role_permissions())}" in found["permissions"]["words"]
    assert found["zones"]["words"] == f"v5litepod-16 is offered in {ZONE}"
    assert found["quota"]["words"] == f"v5litepod-16 needs 16; {ZONE}: 128 on demand, 256 spot"
    assert found["bucket"]["words"] == "gs://runs can be read and written, in US-WEST4"
    jsonschema.validate(json.loads(said.out), json.loads(SCHEMA.read_text()))


def test_only_reads_are_sent_and_exactly_the_role_is_asked_for(orch: Orch, monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated(monkeypatch) as project:
        orch(*ALL)
    sent = project.server.requests
    assert len(sent) >= 8
    for method, target, _ in sent:
        path = target.partition("?")[0]
        assert method == "GET" or (method == "POST" and path.endswith(":testIamPermissions")), (method, target)
    asked = [json.loads(body)["permissions"] for _, target, body in sent if f"/projects/{PROJECT}:test" in target]
    assert list(role_permissions()) in asked


def test_nothing_is_written(orch: Orch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with simulated(monkeypatch):
        assert orch(*ALL).status == 0
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


WRONG = {
    "an API is off": (disabled("compute"), "apis", 4, "gcloud services enable compute.googleapis.com"),
    "a permission is missing": (without("tpu.nodes.stop"), "permissions", 4, "--print-role orch > role.yaml"),
    "no account may be given": (replace(GOOD, acts_as=frozenset()), "act-as", 4, "roles/iam.serviceAccountUser"),
    "no such account": (replace(GOOD, accounts=frozenset()), "act-as", 3, "--service-account EMAIL"),
    "no quota": (replace(GOOD, limits=(Limit("tpu-v5s-litepod", 8),)), "quota", 5, "iam-admin/quotas"),
    "no such bucket": (replace(GOOD, buckets={}), "bucket", 3, "gcloud storage buckets create gs://runs"),
    "a bucket to read": (
        replace(GOOD, buckets={"runs": Bucket("US", frozenset(BUCKET_OBJECTS[2:]))}),
        "bucket",
        10,
        "--role=roles/storage.objectUser",
    ),
    "too few addresses": (
        replace(
            GOOD, limits=(*GOOD.limits, Limit("regional_in_use_addresses", 3, "us-west4", "compute.googleapis.com"))
        ),
        "addresses",
        5,
        "access: iap",
    ),
    "no firewall rules": (without("compute.networks.updatePolicy"), "ssh", 4, "gcp.firewall"),
    "no project to see": (without("resourcemanager.projects.get"), "project", 4, "gcloud projects list"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_found_and_mended_by_one_line(case: str, orch: Orch, monkeypatch: pytest.MonkeyPatch) -> None:
    grants, check, status, mend = WRONG[case]
    with simulated(monkeypatch, grants):
        said = orch(*ALL)
    one = said.findings()[check]
    assert (one["verdict"], one["status"]) == ("fix", status), said.out
    assert mend in one["fix"] and "\n" not in one["fix"]
    first = next(other["status"] for other in said.findings().values() if other["verdict"] == "fix")
    assert said.status == first
    others = {name for name, other in said.findings().items() if other["verdict"] == "fix"} - {check}
    assert others <= {"permissions"}, said.out  # what is wrong in one place is not told of another


UNKNOWN = {
    "quota may not be read": (without("serviceusage.quotas.get"), "quota", "serviceusage.quotas.get"),
    "APIs may not be read": (without("serviceusage.services.get"), "apis", "serviceusage.services.get"),
    "the API that tells of accounts is off": (disabled("iam"), "act-as", "gcloud services enable iam.googleapis.com"),
    "the API that tells of quota is off": (disabled("serviceusage"), "quota", "enable serviceusage.googleapis.com"),
    "quota for serving only": (replace(GOOD, limits=(SERVING,)), "quota", "iam-admin/quotas"),
    "no quota is listed": (replace(GOOD, limits=()), "quota", "iam-admin/quotas"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_cannot_be_found_out_is_no_fault(case: str, orch: Orch, monkeypatch: pytest.MonkeyPatch) -> None:
    grants, check, mend = UNKNOWN[case]
    with simulated(monkeypatch, grants):
        said = orch(*ALL)
    assert said.findings()[check]["verdict"] == "unknown", said.out
    assert mend in said.findings()[check]["fix"]
    to_fix = [name for name, finding in said.findings().items() if finding["verdict"] == "fix"]
    assert (said.status != 0) == bool(to_fix), "an inconclusive check is no problem"


@pytest.mark.parametrize(
    ("accelerator", "verdict", "words"),
    [
        ("v5litepod-4", "ok", f"v5litepod-4 needs 4; {ZONE}: 4 on demand, 0 spot"),
        ("v5litepod-8", "fix", f"v5litepod-8 needs 8; {ZONE}: 4 on demand, 0 spot"),
        ("v5litepod-16", "ok", f"v5litepod-16 needs 16; {ZONE}: 128 on demand, 256 spot"),
    ],
)
def test_small_slices_of_v5e_count_against_the_quota_for_serving(
    accelerator: str, verdict: str, words: str, orch: Orch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Limit names and sizes: "Cloud TPU quotas", read 2026-11-22."""
    others = tuple(limit for limit in GOOD.limits if not limit.metric.endswith("-serving"))
    with simulated(monkeypatch, replace(GOOD, limits=(*others, Limit("tpu-v5s-litepod-serving", 4)))):
        found = orch("check", "gcp", "--zone", ZONE, "--accelerators", accelerator, "-o", "json").findings()["quota"]
        listed = orch("check", "gcp", "--zone", ZONE, "-o", "json").findings()
    assert (found["verdict"], found["words"]) == (verdict, words)
    assert listed["quota v5e serving"]["words"] == f"{ZONE}: 4 on demand, 0 spot"


def test_the_api_of_projects_being_off_does_not_hide_the_rest(orch: Orch, monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated(monkeypatch, disabled("cloudresourcemanager")):
        said = orch(*ALL)
    found = said.findings()
    assert "enable cloudresourcemanager.googleapis.com" in found["project"]["fix"]
    assert found["apis"]["verdict"] == found["bucket"]["verdict"] == "ok"


def test_places(orch: Orch, monkeypatch: pytest.MonkeyPatch) -> None:
    def zones(*words: str) -> dict[str, Any]:
        found: dict[str, Any] = orch("check", "gcp", "-o", "json", *words).findings()["zones"]
        return found

    with simulated(monkeypatch):
        assert zones()["words"] == "2 zones are served"
        assert zones("--zone", ZONE)["words"] == f"{ZONE} is served"
        assert zones("--accelerators", "v5e-16")["words"] == f"v5litepod-16 is offered in {OTHER}, {ZONE}"
        assert zones("--infra", "gcp/us-west4", "--accelerators", "v5e-16")["words"].endswith(f"in {ZONE}")
        closed = zones("--zone", "us-west4-b")
        assert (closed["status"], closed["fix"]) == (5, f"take another: --zone {ZONE}")
        missing = zones("--zone", ZONE, "--accelerators", "v4-8")
        assert missing["verdict"] == "fix" and "us-central2-b" in missing["fix"]
        assert "only Compute Engine" in zones("--accelerators", "tpu7x-8")["words"]
        for wrong in ("v5e-17", "H100:8"):
            found = orch("check", "gcp", "-o", "json", "--accelerators", wrong).findings()
            assert found["accelerators"]["status"] == 2 and "quota" not in found, "one name is one finding"


def test_a_bucket_elsewhere_and_one_that_does_not_show_itself(orch: Orch, monkeypatch: pytest.MonkeyPatch) -> None:
    buckets = {"runs": Bucket("US-EAST1"), "shy": Bucket("US", frozenset(BUCKET_OBJECTS))}
    with simulated(monkeypatch, replace(GOOD, buckets=buckets)):
        far = orch(*ALL).findings()["bucket"]
        shy = orch("check", "gcp", "--bucket", "gs://shy", "-o", "json").findings()["bucket"]
        other = orch("check", "gcp", "--bucket", "s3://runs", "-o", "json").findings()["bucket"]
        wrong = orch("check", "gcp", "--bucket", "runs", "-o", "json").findings()["bucket"]
    assert far["verdict"] == shy["verdict"] == "ok"
    assert "in US-EAST1: hosts in us-west4 pay to read it ($" in far["words"]
    assert shy["words"].endswith("its place is not shown to this account")
    assert (other["verdict"], wrong["verdict"], wrong["status"]) == ("unknown", "fix", 2)


def test_quota_by_family_and_zone(orch: Orch, monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated(monkeypatch):
        found = orch("check", "gcp", "-o", "json").findings()
        of_zone = orch("check", "gcp", "--zone", OTHER, "-o", "json").findings()
        large = orch("check", "gcp", "--zone", ZONE, "--accelerators", "v5litepod-256", "-o", "json").findings()
        larger = orch("check", "gcp", "--zone", OTHER, "--accelerators", "v5litepod-128", "-o", "json").findings()
    assert f"{ZONE}: 128 on demand, 256 spot" in found["quota v5e"]["words"]
    assert "us-central1-b: 0 on demand, 8 spot" in found["quota v6e"]["words"]
    counted = [each.name for each in list_generations() if each.quota_metric]
    assert found["quota"]["words"] == f"none for {', '.join(name for name in counted if name not in ('v5e', 'v6e'))}"
    assert {"v2", "v5p"} <= set(counted) and "tpu7x" not in counted
    assert of_zone["quota v5e"]["words"] == f"{OTHER}: 64 on demand, 0 spot"  # what holds where no zone is named
    assert large["quota"]["verdict"] == "ok"  # by spot
    assert "at least 128 of v5e" in larger["quota"]["fix"]


def test_quota_without_a_limit_and_on_a_later_page(orch: Orch, monkeypatch: pytest.MonkeyPatch) -> None:
    others = tuple(Limit(f"calls-{index:03}", 1) for index in range(205))
    with simulated(monkeypatch, replace(GOOD, limits=(*others, Limit("tpu-v5s-litepod", -1)))):
        found = orch(*ALL).findings()["quota"]
    assert found["words"] == f"v5litepod-16 needs 16; {ZONE}: no limit on demand, 0 spot"
    assert found["verdict"] == "ok"


class Closed:
    """Lists a zone that it then says is closed to the project."""

    def __init__(self, tpu: Front) -> None:
        self._tpu = tpu

    def handle(self, method: str, target: str, body: bytes = b"") -> dict[str, Any]:
        if f"/{OTHER}/acceleratorTypes" in target:
            raise Refusal(PERMISSION_DENIED, f"Location {OTHER} is not found or access is unauthorized.")
        return self._tpu.handle(method, target, body)


class Newer(Closed):
    """A cloud with v6e in a zone that the catalogue does not list for it."""

    def handle(self, method: str, target: str, body: bytes = b"") -> dict[str, Any]:
        if f"/{ZONE}/acceleratorTypes" in target:
            return {"acceleratorTypes": [{"type": "v6e-8"}]}
        return self._tpu.handle(method, target, body)


def test_google_is_asked_for_zones_that_the_table_lacks(orch: Orch, monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated(monkeypatch, over=Newer):
        found = orch("check", "gcp", "--accelerators", "v6e-8", "-o", "json").findings()["zones"]
    assert found["verdict"] == "ok"
    assert found["words"] == (
        f"v6e-8 is offered in {ZONE}; orch's table of {tpu.get_generation('v6e').as_of} lacks {ZONE}: "
        f"name such a zone, --infra gcp/us-west4/{ZONE}"
    )


def test_a_zone_that_is_listed_and_closed_offers_nothing(orch: Orch, monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated(monkeypatch, over=Closed):
        found = orch("check", "gcp", "--accelerators", "v5e-16", "-o", "json").findings()["zones"]
    assert found["words"] == f"v5litepod-16 is offered in {ZONE}"


def test_what_is_not_wanted_may_be_missing(orch: Orch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_GCP_FIREWALL", "false")
    with simulated(monkeypatch, without("compute.firewalls.create", "compute.instances.create")):
        found = orch("check", "gcp", "-o", "json").findings()["permissions"]
        assert (found["verdict"], "Compute Engine" in found["words"]) == ("ok", True)
        found = orch("check", "gcp", "--accelerators", "tpu7x-8", "-o", "json").findings()["permissions"]
        assert (found["verdict"], "compute.firewalls" in found["words"]) == ("fix", False)
        assert "missing: compute.instances.create; without them no way to make" in found["words"]
        monkeypatch.delenv("ORCH_GCP_FIREWALL")
        found = orch("check", "gcp", "-o", "json").findings()["permissions"]
        assert "missing: compute.firewalls.create; without them no way to let" in found["words"]


def test_the_smaller_limit_of_zone_and_region_counts(orch: Orch, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = (Limit("tpu-v5s-litepod", -1, ZONE), Limit("tpu-v5s-litepod", 8, "us-west4"))
    with simulated(monkeypatch, replace(GOOD, limits=limits)):
        assert f"{ZONE}: 8 on demand" in orch(*ALL).findings()["quota"]["words"]


def test_libraries_write_nothing_beside_it(orch: Orch, monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated(monkeypatch, without("serviceusage.quotas.get")):
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", "check", "gcp"], capture_output=True, text=True, check=False
        )
    assert done.returncode == 4
    assert [line for line in done.stderr.splitlines() if not line.startswith("checking gcp")] == [
        "1 problem, 1 check inconclusive",
        "not checked; add: --bucket gs://NAME, --zone ZONE, --accelerators NAME",
    ]


def test_a_project_that_is_not_named_or_is_another(orch: Orch, monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated(monkeypatch):
        said = orch("check", "gcp", "--project", "project-of-others", "-o", "json")
        assert (said.status, list(said.findings())) == (4, ["credentials", "project"])
        assert "project-of-others" in said.findings()["project"]["words"]


def test_commands_that_mend_can_be_pasted(orch: Orch, monkeypatch: pytest.MonkeyPatch) -> None:
    held = frozenset({"resourcemanager.projects.get", "serviceusage.services.get"})
    broken = replace(disabled("compute"), permissions=held, buckets={})
    with simulated(monkeypatch, replace(broken, acts_as=frozenset())):
        said = orch(*ALL)
    commands = [one["fix"].split("   ")[0] for one in said.findings().values() if (one["fix"] or "").startswith("gc")]
    assert len(commands) == 3
    for command in commands:
        words = shlex.split(command)
        assert words[0] == "gcloud" and not re.search(r"[<>|;]", command), command


def test_the_text_has_one_line_each_and_its_remedy_below(orch: Orch, monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated(monkeypatch, replace(GOOD, buckets={})):
        said = orch(*ALL[:-2])
    lines = said.out.splitlines()
    assert lines[0].split()[:3] == ["ok", "gcp", "credentials"]
    (at,) = [index for index, line in enumerate(lines) if line.startswith("FIX")]
    assert lines[at].split()[:3] == ["FIX", "gcp", "bucket"]
    assert lines[at + 1].strip().startswith("next: gcloud storage buckets create")
    assert said.err.endswith("1 problem\n")
    assert said.status == 3


def test_what_was_not_asked_about_is_said(orch: Orch, monkeypatch: pytest.MonkeyPatch) -> None:
    with simulated(monkeypatch):
        said = orch("check", "gcp", "--zone", ZONE)
    assert said.err == "nothing needs fixing\nnot checked; add: --bucket gs://NAME, --accelerators NAME\n"


def test_a_tunnel_needs_gcloud(orch: Orch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ORCH_GCP_ACCESS", "iap")
    monkeypatch.setenv("PATH", str(tmp_path))
    with simulated(monkeypatch):
        found = orch("check", "gcp", "-o", "json").findings()["ssh"]
        assert (found["status"], "needs gcloud" in found["words"]) == (2, True)
        (tmp_path / "gcloud").symlink_to(shutil.which("true", path="/usr/bin:/bin") or "")
        assert orch("check", "gcp", "-o", "json").findings()["ssh"]["verdict"] == "ok"


def test_no_rule_is_asked_for_when_none_is_to_be_made(orch: Orch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_GCP_FIREWALL", "false")
    with simulated(monkeypatch, without("compute.firewalls.create")):
        assert orch("check", "gcp", "-o", "json").findings()["ssh"]["verdict"] == "ok"


def test_without_credentials(orch: Orch) -> None:
    said = orch("check", "gcp", "-o", "json")
    assert said.status == 4
    assert said.findings()["credentials"]["fix"] == "gcloud auth application-default login"


def test_whoever_does_not_use_google_has_nothing_to_mend(orch: Orch) -> None:
    said = orch("check")
    assert said.status == 0, said
    unused = [line.split()[:3] for line in said.out.splitlines() if line.startswith("-")]
    assert unused == [["-", "gcp", "credentials"], ["-", "aws", "credentials"]]


class _Tokens(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        answer = json.dumps({"error": "invalid_grant", "error_description": "Token has been revoked."}).encode()
        self.send_response(400)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        del format, args


def test_credentials_that_google_does_not_take_any_more(
    orch: Orch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = rsa.generate_private_key(65537, 2048).private_bytes(
        Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
    )
    with HTTPServer(("127.0.0.1", 0), _Tokens) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        account = {
            "type": "service_account", "client_email": f"a@{PROJECT}.iam.gserviceaccount.com", "project_id": PROJECT,
            "private_key": key.decode(), "token_uri": f"http://127.0.0.1:{server.server_address[1]}/token",
        }  # fmt: skip
        (tmp_path / "adc.json").write_text(json.dumps(account))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "adc.json"))
        said = orch("check", "gcp", "-o", "json")
        server.shutdown()
        thread.join()
    assert (said.status, list(said.findings())) == (4, ["credentials"])
    assert "revoked" in said.findings()["credentials"]["words"]
    assert said.findings()["credentials"]["fix"] == "gcloud auth application-default login"


@pytest.mark.parametrize(
    "words",
    [
        ("hosts",),
        ("gcp", "--infra", "local"),
        ("gcp", "--infra", "gcp/us-west4/us-west4-a", "--zone", "us-west4-b"),
        ("gcp", "--zone", "nowhere"),
        ("gcp", "--infra", "elsewhere"),
    ],
)
def test_questions_that_cannot_be(words: tuple[str, ...], orch: Orch) -> None:
    said = orch("check", *words)
    assert (said.status, said.out) == (2, "")
    assert said.err.startswith("error[usage]") and len(said.err.splitlines()) <= 5


def test_act_as_is_never_a_permission_of_the_project() -> None:
    """It would let its holder run as every service account there."""
    assert ACT_AS not in role_permissions()


def compute_limit(metric: str, value: int, where: str = "us-central1") -> Limit:
    return Limit(metric, value, where, "compute.googleapis.com")


L4 = ("check", "gcp", "--zone", "us-central1-a", "--accelerators", "L4:4", "-o", "json")
GPUS = tuple(compute_limit(metric, 4) for metric in ("nvidia_l4_gpus", "preemptible_nvidia_l4_gpus"))


@pytest.mark.parametrize(
    ("everywhere", "verdict", "status"),
    [(4, "ok", 0), (0, "fix", 5)],
)
def test_gpus_need_the_quota_of_their_kind_and_the_one_of_all_regions(
    orch: Orch, monkeypatch: pytest.MonkeyPatch, everywhere: int, verdict: str, status: int
) -> None:
    limits = (*GPUS, compute_limit("gpus_all_regions", everywhere, ""))
    with simulated(monkeypatch, replace(GOOD, limits=limits)):
        said = orch(*L4)
    found = said.findings()["quota"]
    assert (found["verdict"], said.status) == (verdict, status), said
    assert found["words"] == (
        f"g2-standard-48 in us-central1, on demand: 4 of 4 nvidia_l4_gpus, 4 of {everywhere} gpus_all_regions; "
        f"spot: 4 of 4 preemptible_nvidia_l4_gpus, 4 of {everywhere} gpus_all_regions"
    )


def test_machines_without_tpus_need_neither_the_tpu_api_nor_its_permissions(
    orch: Orch, monkeypatch: pytest.MonkeyPatch
) -> None:
    grants = replace(
        GOOD,
        apis=GOOD.apis - {"tpu.googleapis.com"},
        permissions=frozenset(one for one in GOOD.permissions if not one.startswith("tpu.")),
        limits=(compute_limit("cpus", 8), compute_limit("preemptible_cpus", 0)),
    )
    with simulated(monkeypatch, grants):
        said = orch("check", "gcp", "--accelerators", "e2-standard-4", "-o", "json")
    found = said.findings()
    assert said.status == 0, said
    assert found["apis"]["words"] == "enabled: compute.googleapis.com"
    assert (
        found["quota"]["words"] == "e2-standard-4 in us-central1, on demand: 4 of 8 cpus; spot: 4 of 0 preemptible_cpus"
    )
    assert found["zones"]["words"].startswith("e2-standard-4 is listed in us-central1-a, ")
    with simulated(monkeypatch, grants):
        missing = orch("check", "gcp", "--accelerators", "n2-standard-4", "-o", "json").findings()["quota"]
    assert "n2-standard-4 in us-central1, on demand: 4 of 0 n2_cpus" in missing["words"], missing
    with simulated(monkeypatch):
        unlisted = orch("check", "gcp", "--accelerators", "e2-standard-4", "-o", "json").findings()["quota"]
    assert (unlisted["verdict"], unlisted["words"]) == ("unknown", "Google lists no quota for e2-standard-4")


def test_a_service_account_is_impersonated_and_all_else_is_asked_as_it(
    orch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = f"vision@{PROJECT}.iam.gserviceaccount.com"
    with simulated(monkeypatch) as project:
        said = orch("check", "gcp", "--impersonate", account, "-o", "json")
        assert said.status == 4, said.err
        found = said.findings()
        assert "Permission 'iam.serviceAccounts.getAccessToken' denied" in found["impersonate"]["words"]
        assert "--role=roles/iam.serviceAccountTokenCreator" in found["impersonate"]["fix"]
        assert "project" not in found
        project.server.tokens.trusting.add(account)
        project.server.callers.clear()
        found = orch("check", "gcp", "--impersonate", account, "-o", "json").findings()
        assert (found["impersonate"]["verdict"], found["project"]["verdict"]) == ("ok", "ok")
        as_itself = [path for who, path in project.server.callers if not who]
        assert all("generateAccessToken" in path for path in as_itself)
