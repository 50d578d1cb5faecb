"""Another user of this computer gets nothing from `orch simulate`: not its APIs, not its hosts, not its token."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from support.orch_process import Orch
from support.other_user import as_other_user, root_only

SHOW_AND_WAIT = "import json, os, sys; print(json.dumps(dict(os.environ)), flush=True); sys.stdin.read()"
NODE = "/v2/projects/local-project/locations/us-west4-a/nodes"
BODY = {
    "acceleratorType": "v5litepod-4",
    "runtimeVersion": "v2-alpha-tpuv5-lite",
    "metadata": {"ssh-keys": "x:ssh-ed25519 AAAA"},
}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
SIGNED = (
    "AWS4-HMAC-SHA256 Credential=orch-simulated/20261101/us-east-1/{}/aws4_request, SignedHeaders=host, Signature="
    + "0" * 64
)


@pytest.fixture
def orch(tmp_path: Path) -> Orch:
    return Orch(tmp_path, {"TMPDIR": str(tmp_path)})


@contextmanager
def simulated(orch: Orch, cloud: str) -> Iterator[dict[str, str]]:
    """The environment of a command in the simulated cloud, while it runs."""
    words = [sys.executable, "-m", "orchestrator", "simulate", cloud, "--", sys.executable, "-c", SHOW_AND_WAIT]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=orch.env, cwd=orch.folder
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.stdin.close()
            process.wait(60)


def ask(url: str, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@root_only
@pytest.mark.parametrize("token", ["", "orch-simulated-guess", "anonymous"])
def test_another_user_makes_no_node_and_reads_no_bucket_of_the_simulated_google(orch: Orch, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}"} if token else {}

    with simulated(orch, "gcp") as env:
        tpu, buckets = env["ORCH_GCP_ENDPOINT"], env["STORAGE_EMULATOR_HOST"]

        def attack() -> Any:
            made = ask(tpu, "POST", f"{NODE}?nodeId=mine", json.dumps(BODY).encode(), headers)
            listed = ask(tpu, "GET", NODE, headers=headers)
            stored = ask(buckets, "PUT", "/mine/key", b"1", headers)
            return [made, listed, stored]

        made, listed, stored = as_other_user(attack)
    for status, text in (made, listed):
        assert status == 401 and json.loads(text)["error"]["status"] == "UNAUTHENTICATED"
    assert stored[0] == 401 and "<Code>AuthenticationRequired</Code>" in stored[1]


@root_only
@pytest.mark.parametrize("signed", [False, True], ids=["unsigned", "forged"])
def test_another_user_makes_no_instance_and_reads_no_bucket_of_the_simulated_aws(orch: Orch, signed: bool) -> None:
    def headers(service: str, more: dict[str, str] | None = None) -> dict[str, str]:
        return {**({"Authorization": SIGNED.format(service)} if signed else {}), **(more or {})}

    with simulated(orch, "aws") as env:
        api, buckets = env["AWS_ENDPOINT_URL"], env["AWS_ENDPOINT_URL_S3"]

        def attack() -> Any:
            query = b"Action=DescribeInstances&Version=2016-11-15"
            target = {"X-Amz-Target": "AmazonSSM.GetParameter", "Content-Type": "application/x-amz-json-1.1"}
            return [
                ask(api, "POST", "/", query, headers("ec2", FORM)),
                ask(api, "POST", "/", b"Action=GetCallerIdentity&Version=2011-06-15", headers("sts", FORM)),
                ask(api, "POST", "/", b"{}", headers("ssm", target)),
                ask(api, "PUT", "/mine/key", b"1", headers("s3")),
                ask(buckets, "PUT", "/mine/key", b"1", headers("s3")),
            ]

        answers = as_other_user(attack)
    assert {status for status, _ in answers} <= {400, 401, 403}, answers
    for status, text in answers:
        assert status in (400, 401, 403)
        codes = ("SignatureDoesNotMatch", "AuthFailure", "InvalidSignatureException") if signed else ("AccessDenied",)
        assert any(code in text for code in codes), text


@root_only
@pytest.mark.slow
def test_another_user_finds_no_token_of_a_running_job_and_enters_no_host(orch: Orch) -> None:
    task = "name: t\nresources: {accelerators: v5e-8, infra: gcp/us-west4/us-west4-a}\nrun: env > seen; sleep 100\n"
    (orch.folder / "t.yaml").write_text(task)
    with simulated(orch, "gcp") as env:
        inside = Orch(orch.folder, {**env, "HOME": str(orch.folder)})
        inside.ok("launch", "t.yaml", "--yes", "-d")
        home = Path(env["ORCH_HOME"])
        (seen,) = home.rglob("seen")
        assert env["ORCH_GCP_TOKEN"] in seen.read_text(), "programs on the hosts reach the buckets"
        (record,) = home.rglob("slice.json")
        place = json.loads(record.read_text())["places"][0]

        def attack() -> Any:
            words = [file.read_bytes() for file in Path("/proc").glob("[0-9]*/cmdline") if file.parent.is_dir()]
            leaks = [word.decode(errors="replace") for word in words if env["ORCH_GCP_TOKEN"].encode() in word]
            options = ("-F/dev/null", "-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null", "-oBatchMode=yes")
            command = ["ssh", *options, f"-p{place['port']}", f"root@{place['host']}", "id"]
            entered = subprocess.run(command, capture_output=True, text=True, check=False)
            return [leaks, entered.returncode, entered.stderr]

        leaks, status, said = as_other_user(attack)
        assert home.stat().st_mode & 0o077 == 0
        inside.ok("down", "t", "--yes")
    assert leaks == []
    assert status == 255 and "Permission denied (publickey)." in said


@pytest.mark.parametrize("token", ["", "orch-simulated-former"])
def test_a_command_without_the_token_is_shown_where_to_get_it(orch: Orch, token: str) -> None:
    with simulated(orch, "gcp") as env:
        inside = Orch(orch.folder, {**env, "HOME": str(orch.folder), "ORCH_GCP_TOKEN": token})
        task = "name: t\nresources: {accelerators: v5e-8, infra: gcp/us-west4/us-west4-a}\nrun: echo\n"
        (orch.folder / "t.yaml").write_text(task)
        done = inside("launch", "t.yaml", "--yes", "-c", "t")
    assert done.returncode == 4
    assert "ORCH_GCP_TOKEN" in done.stderr and "orch simulate gcp" in done.stderr, done.stderr


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o755, None])
def test_a_home_that_others_can_change_is_refused(orch: Orch, mode: int | None) -> None:
    home = orch.folder / "kept"
    if mode is not None:
        home.mkdir()
        home.chmod(mode)
    done = orch("simulate", "gcp", "--home", "kept", "--", "true")
    if mode in (0o777, 0o770):
        assert done.returncode == 2
        assert "is not safe for keys" in done.stderr and "chmod 700" in done.stderr
        assert list(home.iterdir()) == []
    else:
        assert done.returncode == 0, done.stderr
        assert mode or home.stat().st_mode & 0o777 == 0o700
