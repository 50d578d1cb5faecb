"""Mask what must not be in a public report: accounts, projects, people, addresses, machines, keys and tokens.

Rules may mask too much, never too little: a version of four numbers looks like an address.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

_BASE64 = "[A-Za-z0-9+/]"
_MIXED = rf"(?={_BASE64}*[a-z])(?={_BASE64}*[A-Z])(?={_BASE64}*\d)"  # secret keys and session tokens are
_QUOTA = rf"{_BASE64}*Per(?:Project|Zone|Region)"  # TPUV5sLitepodServingPerProjectPerZoneForTPUAPI looks like one
_LEAST = 4  # characters of a name that is replaced wherever it stands; shorter ones are parts of other words
# Prefixes of ids that an account owns; images (ami-) are public. EC2 User Guide, "Resource IDs", 2026-11.
_RESOURCES = (
    "i|vol|eni|eni-attach|sg|sgr|subnet|vpc|vpce|eipalloc|eipassoc|igw|eigw|nat|rtb|rtbassoc|acl|aclassoc|dopt|snap|r|cr|"
    "sir|fleet|lt|pg|key|pl|cb|import|export"
)
_PATTERNS: tuple[tuple[str, str], ...] = (
    (r"-----BEGIN [A-Z ]+-----[\s\S]*?(?:-----END [A-Z ]+-----|\Z)", "<key>"),
    (r"\b(?:ssh-(?:ed25519|rsa|dss)|ecdsa-sha2-nistp\d+) [A-Za-z0-9+/]+={0,3}", "<key>"),
    (r"\bSHA256:[A-Za-z0-9+/]+={0,3}", "<fingerprint>"),
    (r"\b(Bearer|Basic) [\w.~+/=-]+", r"\1 <token>"),
    (r"(?i)([?&\s\"'](?:[\w-]*(?:token|signature|credential|secret|password|api_?key)))(\"?[=:]\s*\"?)[^&\s\"',<]+",
     r"\1\2<secret>"),
    (r"Encoded authorization failure message: \S+", "Encoded authorization failure message: <token>"),
    (r"\beyJ[\w-]+\.[\w-]+(?:\.[\w-]*)?", "<token>"),
    (r"\bya29\.[\w.-]+", "<token>"),
    (r"\b(?:hf_|gh[opsur]_|github_pat_|glpat-|xox[abeprs]-|sk-|AIza)[\w-]{10,}", "<token>"),
    (r"\b(?:AKIA|ASIA|AROA|AIDA|AGPA|AIPA|ANPA|ANVA|APKA|ABIA|ACCA|ASCA)[A-Z0-9]{12,}", "<key>"),
    (r"(arn:[\w-]+:(?:iam|sts)::\d*:)[^\s\"',<]+", r"\1<principal>"),
    (r"\b(ec2|ip)-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}\b", r"\1-<ip>"),  # host names of EC2
    (r"[\w.+%-]+@[\w-]+(?:\.[\w-]+)*", "<address>"),
    (r"(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<id>"),
    (rf"\b({_RESOURCES})-(?:[0-9a-f]{{17}}|[0-9a-f]{{8}})\b", r"<\1-id>"),
    (r"(\bprojects?(?:/|=|: ?| ['\"]))[\w.-]+(?::[\w-]+)?", r"\1<project>"),
    (r"(?:/home|/Users)/[^/\s\"':]+", "<home>"),
    (rf"(?<!{_BASE64})(?!{_QUOTA}){_MIXED}{_BASE64}{{40,}}={{0,2}}", "<secret>"),
    (r"(?<![\w+-])(?=(?:[A-Za-z+_-]*\d){3})(?=[\d+_-]*[A-Za-z])[\w+-]{32,}={0,2}", "<token>"),
    (r"(?<!\d)\d{4}-\d{4}-\d{4}(?!\d)", "<number>"),
)  # fmt: skip
_RULES = tuple((re.compile(pattern), replacement) for pattern, replacement in _PATTERNS)
_NUMBER = re.compile(r"\b(ami-[0-9a-f]{8,17})\b|\d{9,}")
_IP = re.compile(
    r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w)"
    r"|(?<![\w.:])[0-9a-fA-F:]*::?[0-9a-fA-F:.]*[0-9a-fA-F:](?![\w:])"
)


def mask_text(text: str, names: Mapping[str, str] | None = None) -> str:
    """Return a text without what identifies an account, a person, a machine or a secret.

    Args:
        text: Output of a command, or an answer of a cloud.
        names: Names that only this run knows, such as its project, each with its replacement.
    """
    for name, replacement in sorted((names or {}).items(), key=lambda item: -len(item[0])):
        if len(name) >= _LEAST:
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", replacement, text)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    text = _NUMBER.sub(lambda found: found[1] or "<number>", text)
    return _IP.sub(_mask_ip, text)


def mask_document(value: Any, names: Mapping[str, str] | None = None) -> Any:
    """Return a JSON document with all its texts masked; keys stay."""
    if isinstance(value, str):
        return mask_text(value, names)
    if isinstance(value, Mapping):
        return {key: mask_document(item, names) for key, item in cast(Mapping[str, Any], value).items()}
    if isinstance(value, (list, tuple)):
        return [mask_document(item, names) for item in cast(Sequence[Any], value)]
    return value


def _mask_ip(found: re.Match[str]) -> str:
    """Return the replacement of an address; the time 12:30:45 is none."""
    try:
        ipaddress.ip_address(found[0])
    except ValueError:
        return found[0] if ":" in found[0] else "<ip>"
    return "<ip>"
