"""Who asks AWS, and where: credentials, profile, and clients with their deadlines and retries pinned.

`AWS_ENDPOINT_URL=http://127.0.0.1:PORT` leads every call to a server on this computer, without credentials of the
user's. Any other value of it is left to the library.
"""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from typing import Any

from orchestrator.clock import read_date
from orchestrator.cloud_access import SIMULATED
from orchestrator.cloud_identities.role import USUAL_CALLER, AssumedRole, make_role_session
from orchestrator.distribution import install_command
from orchestrator.errors import CredentialsError, UserError
from orchestrator.providers.aws.endpoint import loopback_endpoint
from orchestrator.providers.aws.principal import Principal

HOME_REGION = "us-east-1"  # asked what is the same in every region, when no region is configured
READ_TRIES = 4
CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
ANSWER_SECONDS = 60.0  # for a whole answer: one that drips is never silent for READ_SECONDS
MOST_BYTES = 64 << 20  # of an answer; AWS gives lists in pages
_LOCAL_KEY = "AKIAORCHLOOPBACK0000"  # for a server on this computer, which checks no signature


class AwsSession:
    """profile: of the AWS configuration, "" for the usual one. endpoint: a server on this computer, "" for AWS itself.

    tries: of a read in all. hook: called with each new client. Raises UserError without the library or the profile.
    """

    def __init__(
        self,
        profile: str = "",
        endpoint: str = "",
        *,
        tries: int = READ_TRIES,
        hook: Callable[[Any], None] | None = None,
    ) -> None:
        self.profile = profile
        self.principal = Principal(profile=profile)
        self.endpoint = endpoint
        self.account = ""  # see identity.py
        self._tries = tries
        self._hook = hook
        self._core, self._boto = _boto(profile, endpoint)
        self._clients: dict[tuple[str, str, bool], Any] = {}
        self._lock = threading.Lock()  # a boto3 session makes one client at a time

    @property
    def loopback(self) -> bool:
        return bool(self.endpoint)

    @property
    def region(self) -> str:
        """Where to ask what is no region's own."""
        return str(self._boto.region_name or HOME_REGION)

    def check(self) -> None:
        """Raises CredentialsError without credentials. Whether AWS takes them is another question."""
        if self.loopback:
            return
        unusable: Any = import_module("botocore.exceptions").BotoCoreError
        how = f"aws configure{option_of(self.profile)}   or: aws sso login{option_of(self.profile)}"
        try:
            found = self._boto.get_credentials()
        except unusable as error:  # a key without its secret, a program that fails
            raise CredentialsError("the AWS credentials on this computer cannot be used", str(error), how) from error
        if found is None:
            words = f"profile '{self.profile}' has none" if self.profile else ""
            raise CredentialsError("there are no AWS credentials on this computer", words, how)

    def assume(self, principal: Principal, caller: str = "") -> AwsSession:
        """Return the session of the role of a principal, whose profile is this session's. Sends nothing.

        caller: the name of the role's session; "" for the usual one.
        """
        role = AssumedRole(arn=principal.role_arn, external_id=principal.external_id, caller=caller or USUAL_CALLER)
        other = copy.copy(self)
        other.principal, other.account, other._clients, other._lock = principal, "", {}, threading.Lock()
        other._core = make_role_session(self._core, role, region=self.region, endpoint=self.endpoint)
        other._boto = import_library().Session(botocore_session=other._core)
        return other

    def client(self, service: str, region: str, *, once: bool = False) -> Any:
        """once: a call is sent one time, and who calls says whether it is sent again.

        The library would repeat a RunInstances that found no machines: that is HTTP 500 ("Error codes", EC2 API
        reference), and its own token does not outlive the process.
        """
        with self._lock:
            found = self._clients.get((service, region, once))
            if found is None:
                found = self._made(service, region, once=once)
                self._clients[service, region, once] = found
            return found

    def _made(self, service: str, region: str, *, once: bool) -> Any:
        config = import_module("botocore.config").Config(
            retries={"mode": "standard", "total_max_attempts": 1 if once else self._tries},
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            user_agent_extra="orch",
            s3={"addressing_style": "path"} if self.loopback else None,
        )
        options = {"endpoint_url": self.endpoint} if self.endpoint else {}
        client = self._boto.client(service, region_name=region, config=config, **options)
        _bound_answers(client)
        if self._hook is not None:
            self._hook(client)
        return client


def _bound_answers(client: Any) -> None:
    """Bound every answer in time and size. The library has no setting for it, only the classes of its connections."""
    from orchestrator.conversation import make_bounded_response

    http = client._endpoint.http_session
    response = make_bounded_response(ANSWER_SECONDS, MOST_BYTES)
    for scheme, pool in http._pool_classes_by_scheme.items():
        connection = type("BoundedConnection", (pool.ConnectionCls,), {"response_class": response})
        http._pool_classes_by_scheme[scheme] = type("BoundedPool", (pool,), {"ConnectionCls": connection})


def open_principal(principal: Principal) -> AwsSession:
    """Return the session of a profile, or of the role that it assumes; errors as of `open_session`."""
    session = open_session(principal.profile)
    return session.assume(principal) if principal.role_arn else session


def open_session(profile: str = "", *, learn: Callable[[float], None] | None = None) -> AwsSession:
    """Raises AccessError without credentials, UserError without the library or the profile.

    learn: called with the time of each answer that has a Date header.
    """
    hook = None if learn is None else partial(_hear_dates, learn)
    session = AwsSession(profile, loopback_endpoint(), hook=hook)
    session.check()
    return session


def option_of(profile: str) -> str:
    """Return what names a profile on an `aws` command line."""
    return f" --profile {profile}" if profile else ""


def _hear_dates(learn: Callable[[float], None], client: Any) -> None:
    def hear(parsed: dict[str, Any], **_: Any) -> None:
        time = read_date(parsed.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", ""))
        if time is not None:
            learn(time)

    client.meta.events.register("after-call", hear)


def import_library() -> Any:
    """The module boto3. Raises UserError."""
    try:
        return import_module("boto3")
    except ImportError as error:
        raise UserError("Amazon's client library is not installed", str(error), install_command("aws")) from error


def _boto(profile: str, endpoint: str) -> tuple[Any, Any]:
    """The session of botocore, and that of boto3 around it."""
    library = import_library()
    core: Any = import_module("botocore.session").get_session()
    core.register_component("data_loader", _loader(core.get_config_variable("data_path")))
    if endpoint:
        key = os.environ.get("AWS_ACCESS_KEY_ID") or _LOCAL_KEY
        secret = os.environ.get("AWS_SECRET_ACCESS_KEY", "") if key.startswith(SIMULATED) else ""
        return core, library.Session(key, secret or "none", botocore_session=core)
    unknown: Any = import_module("botocore.exceptions").ProfileNotFound
    try:
        session = library.Session(profile_name=profile or None, botocore_session=core)
        core.get_scoped_config()  # raises for a profile that is not there, also for one of AWS_PROFILE
    except unknown as error:
        raise UserError("there is no such AWS profile", str(error), "aws configure list-profiles") from error
    return core, session


@cache
def _loader(path: str | None) -> Any:
    """What reads the models of the services, and keeps them: that of EC2 takes a third of a second."""
    return import_module("botocore.loaders").create_loader(path)
