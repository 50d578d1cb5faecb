"""The channels of the configuration, and the secrets that it names: variables of the environment, or files."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from orchestrator.errors import AccessError, UserError
from orchestrator.notifications.conditions import Thresholds
from orchestrator.notifications.notices import Kind
from orchestrator.task.config import Config
from orchestrator.task.likely_secrets import is_likely_secret

THIS_COMPUTER = ("127.0.0.1", "localhost", "::1")
_ADDRESS = re.compile(r"[^\s<>,;:@\"]+@[^\s<>,;:@\"]+")
_KEY_PREFIX = "whsec_"
_TOKEN_LETTERS = 6  # that a value of a query has at least to be hidden alone: shorter ones are parts of words
_KEY_BYTES = 24  # the least, by the specification of Standard Webhooks
_CHANNELS = {"webhook": "webhook", "slack": "slack", "email": "email_to"}  # by the key that switches each on
NAMES = tuple(_CHANNELS)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookChannel:
    """A URL that takes JSON.

    Attributes:
        key: Signs the messages; empty for unsigned ones.
    """

    url: str = field(repr=False)  # may hold a token
    key: bytes = field(default=b"", repr=False)

    @property
    def target(self) -> str:
        """The receiver, without secrets."""
        return _describe_url(self.url)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackChannel:
    """The URL of an incoming webhook of Slack, or of a service that takes the same messages. It is a secret."""

    url: str = field(repr=False)

    @property
    def target(self) -> str:
        """The receiver, without secrets."""
        return _describe_url(self.url)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailChannel:
    """A mail server and the addresses that it delivers to.

    Attributes:
        security: "starttls", "tls", or "none" for a server on this computer.
        user: "" for a server that wants no login.
    """

    to: tuple[str, ...]
    sender: str
    host: str
    port: int
    security: str
    user: str = ""
    password: str = field(default="", repr=False)

    @property
    def target(self) -> str:
        """The receiver, without secrets."""
        return ", ".join(self.to)


Channel = WebhookChannel | SlackChannel | EmailChannel


def list_channels(config: Config) -> tuple[str, ...]:
    """Return the names of the channels that are switched on."""
    return tuple(name for name, key in _CHANNELS.items() if _is_set(config, key))


def read_channel(config: Config, name: str, env: Mapping[str, str]) -> Channel:
    """Return a channel with its secrets.

    Args:
        config: The configuration.
        name: One of `list_channels`.
        env: The environment, in which secrets may be.

    Raises:
        UserError: A setting is missing or wrong.
        AccessError: A secret cannot be read.
    """
    if name == "webhook":
        url = _read_url(config, "webhook", env)
        reference = config.text("notify.webhook_secret")
        return WebhookChannel(url=url, key=_read_key(reference, env) if reference else b"")
    if name == "slack":
        return SlackChannel(url=_read_url(config, "slack", env))
    return _read_email(config, env)


def read_kinds(config: Config) -> frozenset[Kind]:
    """Return the kinds of messages that are sent. Raises UserError for an unknown one."""
    names = config.texts("notify.kinds")
    unknown = [name for name in names if name not in list(Kind)]
    if unknown:
        known = ", ".join(kind.value for kind in Kind)
        raise UserError(f"there are no messages of the kind '{unknown[0]}'", f"the kinds are {known}", _SET + "kinds …")
    return frozenset(map(Kind, names)) or frozenset(Kind)


def read_thresholds(config: Config) -> Thresholds:
    """Return from when on a job counts as waiting, and a limit as near."""
    return Thresholds(
        waiting=60.0 * config.number("notify.waiting_minutes"), near=config.number("notify.near_percent") / 100
    )


def hide_secrets(channel: Channel, text: str) -> str:
    """Return the text without what the channel keeps secret."""
    secrets = [channel.password] if isinstance(channel, EmailChannel) else _list_secret_parts(channel.url)
    for secret in secrets:
        if len(secret) > 1:
            text = text.replace(secret, "***")
    return text


def _list_secret_parts(url: str) -> list[str]:
    """Return the parts of an address that may hold a token, the longer ones first, as written and as they are read."""
    parts = urlsplit(url)
    values = [one.partition("=")[2] for one in parts.query.split("&")]
    values = [value for value in values if len(value) >= _TOKEN_LETTERS]
    written = [url, f"{parts.path}?{parts.query}", parts.path, parts.query, *values]
    return sorted({form for one in written for form in (one, unquote(one))}, key=len, reverse=True)


_SET = "orch config set notify."


def _is_set(config: Config, key: str) -> bool:
    return bool(config.texts("notify.email_to") if key == "email_to" else config.text(f"notify.{key}"))


def _read_secret(key: str, reference: str, env: Mapping[str, str]) -> str:
    """Return the content of `env:NAME` or `file:PATH`.

    Raises:
        UserError: It is neither; the text is not repeated, as it may be the secret itself.
        AccessError: The variable is not set, or the file cannot be read.
    """
    kind, _, place = reference.partition(":")
    if kind not in ("env", "file") or not place:
        raise UserError(
            f"notify.{key} must name its secret as env:NAME or file:PATH", "secrets are not kept in the configuration",
            f"write it to a file, then: {_SET}{key} file:PATH",
        )  # fmt: skip
    if kind == "env":
        value = env.get(place, "")
        why = "the engine has the environment of the command that started it"
    else:
        try:
            value, why = Path(place).expanduser().read_text(encoding="utf-8"), "the file is empty"
        except (OSError, UnicodeError) as error:
            value, why = "", str(error)
    if not value.strip():
        raise AccessError(f"the secret notify.{key} is not in {reference}", why, f"set it, or: {_SET}{key} file:PATH")
    return value.strip()


def _read_url(config: Config, key: str, env: Mapping[str, str]) -> str:
    text = config.text(f"notify.{key}")
    if key == "slack" or not text.startswith(("http://", "https://")):
        return _check_url(key, _read_secret(key, text, env))
    _check_url(key, text)
    if is_likely_secret("", text) or "@" in urlsplit(text).netloc:
        raise UserError(
            f"the address in notify.{key} has a secret in it", "it would be in the configuration, and be printed",
            f"write it to a file, then: {_SET}{key} file:PATH",
        )  # fmt: skip
    return text


def _check_url(key: str, url: str) -> str:
    """Return an address that may be used. An error does not repeat it."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    if any(character.isspace() or not character.isprintable() for character in url) or not host:
        raise UserError(f"notify.{key} has no address of a web server", "", f"{_SET}{key} https://…")
    if parts.scheme != "https" and not (parts.scheme == "http" and host in THIS_COMPUTER):
        raise UserError(
            f"notify.{key} must be an https address",
            f"its messages would pass {host} in clear",
            f"{_SET}{key} https://…",
        )
    return url


def _read_key(reference: str, env: Mapping[str, str]) -> bytes:
    text = _read_secret("webhook_secret", reference, env)
    try:
        key = base64.b64decode(text.removeprefix(_KEY_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not text.startswith(_KEY_PREFIX) or len(key) < _KEY_BYTES:
        raise UserError(
            "the key in notify.webhook_secret has another form",
            f"it must be {_KEY_PREFIX} and at least {_KEY_BYTES} random bytes in base64",
            "make one: echo whsec_$(openssl rand -base64 32)",
        )
    return key


def _read_email(config: Config, env: Mapping[str, str]) -> EmailChannel:
    sender, server, user = (config.text(f"notify.{key}") for key in ("email_from", "smtp", "smtp_user"))
    for key, value, example in (("email_from", sender, "orch@example.org"), ("smtp", server, "mail.example.org:587")):
        if not value:
            raise UserError(f"notify.{key} is not set", "e-mails need it", f"{_SET}{key} {example}")
    for address in (sender, *config.texts("notify.email_to")):
        if _ADDRESS.fullmatch(address) is None:
            raise UserError(f"'{address}' is not an e-mail address", "", "write it as ann@example.org, without a name")
    host, _, port = server.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise UserError(f"notify.smtp must be HOST:PORT; here it is '{server}'", "", f"{_SET}smtp mail.example.org:587")
    security = config.text("notify.smtp_security")
    if security not in ("starttls", "tls", "none"):
        raise UserError(
            f"notify.smtp_security must be starttls, tls or none; here it is '{security}'",
            "",
            f"{_SET}smtp_security starttls",
        )
    host = host.strip("[]")
    if security == "none" and host not in THIS_COMPUTER:
        raise UserError(
            "notify.smtp_security may be none for a mail server on this computer alone",
            f"messages and the password would reach {host} in clear", f"{_SET}smtp_security starttls",
        )  # fmt: skip
    reference = config.text("notify.smtp_password")
    if bool(user) != bool(reference):
        missing = "smtp_password" if user else "smtp_user"
        raise UserError(f"notify.{missing} is not set", "a login needs both", f"{_SET}{missing} …")
    return EmailChannel(
        to=config.texts("notify.email_to"), sender=sender, host=host, port=int(port), security=security, user=user,
        password=_read_secret("smtp_password", reference, env) if reference else "",
    )  # fmt: skip


def _describe_url(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
