"""Whatever identifies an account, a person, a machine or a secret is masked; ordinary words stay."""

from __future__ import annotations

import re
import string
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.acceptance.masking import mask_document, mask_text

HEX, ALNUM, BASE64URL = "0123456789abcdef", string.ascii_letters + string.digits, string.ascii_letters + "0123456789-_"
UPPER = string.ascii_uppercase + string.digits


def texts(alphabet: str, low: int, high: int | None = None) -> st.SearchStrategy[str]:
    return st.text(alphabet, min_size=low, max_size=high or low)


def random_token(text: str) -> bool:
    """As random ones are: digits among letters."""
    return sum(map(str.isdigit, text)) >= 3 and any(map(str.isalpha, text)) and text[0].isalnum()


SECRETS: dict[str, st.SearchStrategy[str]] = {
    "account": texts(string.digits, 12),
    "project number": texts(string.digits, 9, 19).filter(lambda text: text[0] != "0"),
    "address": st.builds(str, st.ip_addresses(v=4)),
    "ipv6 address": st.ip_addresses(v=6).map(lambda one: IPv6Address(int(one) | 1 << 120)).map(str),
    "exploded ipv6 address": st.ip_addresses(v=6).map(lambda one: one.exploded),
    "host of EC2": st.ip_addresses(v=4).map(lambda one: f"ip-{str(one).replace('.', '-')}"),
    "e-mail": st.builds("{}@{}.example.com".format, texts(ALNUM, 3, 12), texts(string.ascii_lowercase, 3, 9)),
    "access key": st.builds("{}{}".format, st.sampled_from(["AKIA", "ASIA", "AROA"]), texts(UPPER, 16)),
    "secret key": texts(ALNUM + "+/", 40).filter(
        lambda text: any(map(str.isdigit, text)) and any(map(str.isupper, text)) and any(map(str.islower, text))
    ),
    "access token": st.builds("ya29.{}".format, texts(BASE64URL, 30, 60)),
    "json web token": st.builds("eyJ{}.eyJ{}.{}".format, *(texts(BASE64URL, 12, 40) for _ in range(3))),
    "hugging face token": st.builds("hf_{}".format, texts(ALNUM, 20, 40)),
    "random token": texts(BASE64URL, 32, 80).filter(random_token),
    "instance": st.builds("i-{}".format, texts(HEX, 17)),
    "volume of old times": st.builds("vol-{}".format, texts(HEX, 8)),
    "security group": st.builds("sg-{}".format, texts(HEX, 17)),
    "elastic address": st.builds("eipalloc-{}".format, texts(HEX, 17)),
    "request": st.uuids().map(str),
    "fingerprint": st.builds("SHA256:{}".format, texts(ALNUM + "+/", 43)),
    "public key": st.builds("ssh-ed25519 AAAAC3{}".format, texts(ALNUM + "+/", 62)),
}
BETWEEN = st.sampled_from([" ", "\n", "'", '"', ", ", "(", ")", "<", ">", "; ", "=", "\t"])


@pytest.mark.parametrize("kind", SECRETS)
@given(data=st.data(), before=BETWEEN, after=BETWEEN)
def test_what_identifies_is_masked_wherever_it_stands(kind: str, data: st.DataObject, before: str, after: str) -> None:
    secret = data.draw(SECRETS[kind])
    masked = mask_text(f"of{before}{secret}{after}rest")
    assert secret not in masked, masked
    assert masked.startswith("of") and masked.endswith("rest"), "what is around it stays"


@given(address=st.ip_addresses(v=4), port=st.integers(1, 65535), account=texts(string.digits, 12))
def test_parts_of_addresses_and_names_are_masked(address: IPv4Address, port: int, account: str) -> None:
    text = f"http://{address}:{port}/x arn:aws:iam::{account}:user/alice/lee me@{address}:22 https://me.s3/?a={account}"
    masked = mask_text(text)
    assert not [one for one in (str(address), account, "alice", "lee") if one in masked], masked


@given(name=st.from_regex(r"[a-z][a-z0-9-]{4,28}[a-z0-9]", fullmatch=True))
def test_projects_are_masked_by_place_and_by_name(name: str) -> None:
    by_place = mask_text(
        f"projects/{name}/zones/us-central1-a, --project={name} and project '{name}' ?project={name}&x"
    )
    assert f"/{name}/" not in by_place and f"'{name}'" not in by_place and f"={name}" not in by_place, by_place
    assert "/zones/us-central1-a" in by_place
    by_name = mask_text(f"gcp:{name}@loopback, {name}.appspot.com", {name: "<project>"})
    assert by_name in ("gcp:<project>@loopback, <project>.appspot.com", "gcp:<address>, <project>.appspot.com"), by_name


@given(text=st.text(st.sampled_from(string.printable), max_size=200))
def test_masking_again_changes_nothing(text: str) -> None:
    once = mask_text(text)
    assert mask_text(once) == once


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "token", "X-Amz-Signature", "client_secret", "password"])
@given(value=texts(ALNUM + "/+.~-", 1, 60))
def test_values_of_secret_names_are_masked(name: str, value: str) -> None:
    for text in (f'"{name}": "{value}"', f"?{name}={value}&a=1", f" {name}={value}"):
        if name == "AWS_SECRET_ACCESS_KEY":  # the name of an environment variable is none of an address
            assert mask_text(text, {value: "<secret>"}).count(value) == (text.count(value) if len(value) < 4 else 0)
        else:
            assert re.search(r"<\w+>", mask_text(text)), text


@pytest.mark.parametrize(
    "text",
    [
        "e2-standard-2 in gcp/us-central1/us-central1-a, $0.07/h, ready 2 s after the request",
        'There is no more capacity in the zone "us-central1-b"; you can try in another zone',
        "Quota 'TPUV5sPreemptibleLitepodServingPerProjectPerZoneForTPUAPI' exhausted. Limit 4 in region us-west4.",
        "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS (resource type:compute)",
        "no default VPC for this user; ami-0abcdef1234567890 at 12:30:45, 2026-11-26T04:08:19Z",
        "torch 2.13.0+cpu on cpu: step 20/1000000 loss 4.4743; std::string; L-417A185B",
        "Running On-Demand P instances; project quota; the project is new",
    ],
)
def test_ordinary_words_stay(text: str) -> None:
    assert mask_text(text) == text


def test_a_private_key_is_masked_also_when_its_end_is_cut() -> None:
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blb\nc2Vj\n"
    assert mask_text(f"a {key}-----END OPENSSH PRIVATE KEY----- b") == "a <key> b"
    assert mask_text(f"a {key}") == "a <key>"


def test_a_document_is_masked_in_its_depth() -> None:
    document = {"steps": [{"argv": ("orch", "down"), "out": ["on 10.1.2.3"], "status": 0}], "ok": True, "no": None}
    assert mask_document(document) == {
        "steps": [{"argv": ["orch", "down"], "out": ["on <ip>"], "status": 0}], "ok": True, "no": None
    }  # fmt: skip
