"""A proxy before moto, a third party's server of AWS's API, which adds what the life of a slice needs and moto lacks.

Every other request and answer passes unchanged. `own` lists what did not: what the proxy answered itself, and what it
changed on the way, each with the reason. Of moto 5.2.5:

- no placement groups: moto_placement.py;
- no client tokens of RunInstances (EC2 Developer Guide, "Ensuring idempotency", read November 2026): the same request
  gets the same answer, another one with the token IdempotentParameterMismatch, and one whose instances were terminated
  IdempotentInstanceTerminated ("Error codes for the Amazon EC2 API"; its text: boto3 issue 4406, January 2025);
- no filter `client-token` of DescribeInstances, which EC2 has: moto_proxy names the instances instead;
- Placement.GroupName is not read, so a launch into an unknown group is not refused;
- no public parameters of images: GetParameter answers with an image that the account has registered;
- no machines: moto_machines.py puts sshd hosts behind the instances, whose addresses are shown instead of moto's;
- every region of every partition is enabled: the request names those that a test uses.
"""

from __future__ import annotations

import http.client
import threading
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from moto_calls import Call, Reply, json_reply, refusal
from moto_machines import Machines
from moto_placement import PlacementGroups

from orchestrator.providers.local.owner import own_hosts

REGIONS = ("us-east-1", "us-west-2")  # enabled in every account of the tests
IMAGES = ("/aws/service/canonical/ubuntu/", "/aws/service/deeplearning/ami/")  # names of public parameters
NO_INSTANCE = "i-00000000000000000"
LOST = "the answer is lost"
NOWHERE = ("127.255.255.254", 9)  # of an instance without a host: no address of moto may be dialled, it is somebody's
_OF_CONNECTION = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive"})
_CHANGES = frozenset({"RunInstances", "TerminateInstances", "StopInstances", "StartInstances"})


@dataclass(frozen=True)
class Launch:
    """A RunInstances that moto carried out. sent: its parameters. answer: of moto."""

    call: Call
    answer: Reply
    group: str
    instances: tuple[str, ...]


@dataclass
class MotoProxy:
    """moto: host and port. client: of EC2, straight to moto, for an access key and a region.

    Attributes:
        seen: The operations that came, in their order.
        own: Operation and reason of what did not pass unchanged.
    """

    moto: tuple[str, int]
    client: Callable[[str, str], Any]
    machines: Machines
    seen: list[str] = field(default_factory=list[str])
    own: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    launches: list[Launch] = field(default_factory=list[Launch])
    hidden: bool = False  # launches are not shown yet, as "Eventual consistency" of the EC2 API allows

    def __post_init__(self) -> None:
        self.placement = PlacementGroups(self._in_use)
        self._lost: Counter[str] = Counter()
        self._refused: dict[str, Reply] = {}
        self._lock = threading.RLock()  # one change at a time: hosts follow what moto shows

    def lose(self, operation: str, times: int = 1) -> None:
        """Carry out the next requests of an operation, and break their connections instead of an answer."""
        self._lost[operation] += times

    def refuse(self, operation: str, code: str, words: str, status: int = 400) -> None:
        """Refuse the next request of an operation."""
        self._refused[operation] = refusal(code, words, status)

    def handle(self, call: Call) -> Reply | None:
        """Return the answer of a request; None breaks the connection."""
        self.seen.append(call.operation)
        if call.operation.startswith(("Describe", "Get")):
            reply = self._answer(call)
        else:
            with self._lock:
                reply = self._answer(call)
        if self._lost[call.operation]:
            self._lost[call.operation] -= 1
            return self._note(call, LOST, None)
        return reply

    def _answer(self, call: Call) -> Reply:
        if call.operation in self._refused:
            return self._note(call, "refused by the test", self._refused.pop(call.operation))
        if (grouped := self.placement.answer(call)) is not None:
            return self._note(call, "moto has no placement groups", grouped)
        if call.operation == "GetParameter" and call.params["Name"].startswith(IMAGES):
            return self._note(call, "moto has no public parameters of images", self._image(call))
        if call.operation == "RunInstances":
            return self._run(call)
        reply = self._shown(call, self.forward(self._asked(call)))
        if call.operation in _CHANGES:
            self.machines.follow(self.client(*call.place))
        return reply

    def forward(self, call: Call) -> Reply:
        """Send a request to moto, byte by byte."""
        connection = http.client.HTTPConnection(*self.moto, timeout=60)
        try:
            headers = {**_passed(call.headers), "Content-Length": str(len(call.body))}
            connection.request(call.method, call.path, call.body, headers)
            answer = connection.getresponse()
            return Reply(answer.status, _passed(answer.headers), answer.read())
        finally:
            connection.close()

    def _run(self, call: Call) -> Reply:
        token, group = call.params.get("ClientToken", ""), call.params.get("Placement.GroupName", "")
        made = next((one for one in self.launches if token and _is_of(one, call, token)), None)
        if made is not None:
            return self._note(call, "moto has no client tokens", self._again(made, call))
        if group and group not in self.placement.here(call):
            unknown = refusal("InvalidPlacementGroup.Unknown", f"The Placement Group '{group}' is unknown.")
            return self._note(call, "moto has no placement groups", unknown)
        reply = self.forward(call)
        if reply.status == 200:
            answer = ET.fromstring(reply.body)
            ids = tuple(one.text or "" for one in answer.iterfind(".//{*}instanceId"))
            self.launches.append(Launch(call, reply, group, ids))
            self.machines.user_data[answer.findtext("{*}reservationId", "")] = call.params.get("UserData", "")
            self.machines.follow(self.client(*call.place))
        return reply

    def _again(self, made: Launch, call: Call) -> Reply:
        """Answer a token that was used before. Which of the two refusals comes first is not documented."""
        if self._alive(made) == 0:
            words = "The client token you have provided is associated with a terminated instance."
            return refusal("IdempotentInstanceTerminated", f"{words} Please use a different client token.")
        if made.call.params != call.params:
            words = "Arguments on this idempotent request are inconsistent with arguments used in previous request(s)."
            return refusal("IdempotentParameterMismatch", words)
        return made.answer

    def _asked(self, call: Call) -> Call:
        """Return a request as moto understands it."""
        if call.operation == "DescribeRegions":
            named = {f"RegionName.{number}": region for number, region in enumerate(REGIONS, 1)}
            return self._note(call, "moto enables every region", call.with_params({**call.params, **named}))
        tokens = call.filters().get("client-token") if call.operation == "DescribeInstances" else None
        if tokens is None:
            return call
        made = [one for one in self.launches if any(_is_of(one, call, token) for token in tokens) and not self.hidden]
        ids = [name for one in made for name in one.instances] or [NO_INSTANCE]
        (number,) = (key.split(".")[1] for key, value in call.params.items() if value == "client-token")
        kept = {key: value for key, value in call.params.items() if not key.startswith(f"Filter.{number}.")}
        named = {f"Filter.{number}.Value.{index}": name for index, name in enumerate(ids, 1)}
        changed = call.with_params({**kept, f"Filter.{number}.Name": "instance-id", **named})
        return self._note(call, "moto has no filter client-token", changed)

    def _shown(self, call: Call, reply: Reply) -> Reply:
        """Return an answer of DescribeInstances with the addresses at which the hosts listen."""
        if call.operation != "DescribeInstances" or reply.status != 200:
            return reply
        body = reply.body
        for item in ET.fromstring(body).iterfind(".//{*}item"):
            if item.find("{*}instanceId") is None:
                continue
            address, _ = self.machines.places.get(item.findtext("{*}instanceId", ""), NOWHERE)
            for given in (item.findtext("{*}ipAddress"), item.findtext("{*}privateIpAddress")):
                if given:
                    body = body.replace(f">{given}<".encode(), f">{address}<".encode())
        if body != reply.body:
            self._note(call, "the hosts listen on this computer", None)
        return Reply(reply.status, reply.headers, body)

    def _image(self, call: Call) -> Reply:
        """Answer with the account's own image, which moto makes."""
        ec2, name = self.client(*call.place), call.params["Name"]
        found = [one["ImageId"] for one in ec2.describe_images(Owners=["self"])["Images"]]
        if not found:
            found = [ec2.register_image(Name="ubuntu-noble-24.04-amd64", RootDeviceName="/dev/sda1")["ImageId"]]
        return json_reply({"Parameter": {"Name": name, "Type": "String", "Value": found[0], "Version": 1}})

    def _in_use(self, call: Call, group: str) -> bool:
        made = [one for one in self.launches if one.group == group and one.call.place == call.place]
        return any(self._alive(one) for one in made)

    def _alive(self, made: Launch) -> int:
        shown = self.client(*made.call.place).describe_instances(InstanceIds=list(made.instances))["Reservations"]
        return sum(one["State"]["Name"] != "terminated" for each in shown for one in each["Instances"])

    def _note(self, call: Call, reason: str, what: Any) -> Any:
        self.own.append((call.operation, reason))
        return what


def _is_of(made: Launch, call: Call, token: str) -> bool:
    """A token is of one account and one region. No test uses one in two zones, where it is two tokens as well."""
    return made.call.place == call.place and made.call.params.get("ClientToken") == token


def _passed(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _OF_CONNECTION}


@contextmanager
def moto_proxy(
    moto: tuple[str, int], client: Callable[[str, str], Any], folder: Path
) -> Iterator[tuple[MotoProxy, str]]:
    """The proxy, and its URL on a free loopback port. folder: of the hosts, which end with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    proxy = MotoProxy(moto, client, Machines(folder))

    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            reply = proxy.handle(Call(self.command, self.path, dict(self.headers), body))
            if reply is None:
                self.close_connection = True
                return
            self.send_response_only(reply.status)
            for name, value in {**reply.headers, "Content-Length": str(len(reply.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body)

        do_GET = do_PUT = do_DELETE = do_HEAD = do_POST  # noqa: N815 - the names are the library's

    with own_hosts(folder), ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="moto proxy", daemon=True)
        thread.start()
        try:
            yield proxy, f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(5)
            proxy.machines.end()
