"""Signatures by the key of a run: they tell what its own ranks left in its bucket from what others put there.

A signature is an HMAC-SHA-256 of a path in the run's folder and of the content. So nothing that is signed counts under
another name, at another step or in another run: each run has its own key. Files of own programs may hold code, for
example pickles. So a reader loads a checkpoint of format 3 only with the signature, or after someone has agreed to it
(program/trust.py). This module needs only the standard library.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import replace

from .manifest import MANIFEST, Manifest

SIGNATURE_BYTES = 32
_HEX = re.compile(r"[0-9a-f]{64}")


def sign(key: bytes, path: str, content: bytes | memoryview) -> bytes:
    """Return the signature of what is at a path below the run's folder.

    Raises:
        ValueError: There is no key; everyone could make a signature without one.
    """
    if not key:
        raise ValueError("a signature needs the key of a run")
    signed = hmac.new(key, path.encode() + b"\0", hashlib.sha256)
    signed.update(content)
    return signed.digest()


def is_signature(key: bytes, path: str, content: bytes | memoryview, signature: bytes | bytearray) -> bool:
    """Return whether a signature is that of the key for this path and content; never without a key."""
    return bool(key) and hmac.compare_digest(signature, sign(key, path, content))


def sign_manifest(manifest: Manifest, key: bytes) -> Manifest:
    """Return a manifest with its signature, which covers its place and all that it says: names, sizes and digests."""
    return replace(manifest, signature=sign(key, *_signed_content(manifest)).hex())


def is_manifest_signed(manifest: Manifest, key: bytes) -> bool:
    """Return whether a manifest carries the signature of the key."""
    given = bytes.fromhex(manifest.signature) if _HEX.fullmatch(manifest.signature) else b""
    return is_signature(key, *_signed_content(manifest), given)


def _signed_content(manifest: Manifest) -> tuple[str, bytes]:
    return f"checkpoints/{manifest.folder}/{MANIFEST}", replace(manifest, signature="").to_json()
