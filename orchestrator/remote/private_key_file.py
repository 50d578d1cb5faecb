"""The file of an Ed25519 private key in OpenSSH's format, the same bytes for the same key. Standard library only.

OpenSSH writes random check bytes; a file that is rendered twice for one request must not differ.
Format: OpenSSH, PROTOCOL.key.
"""

from __future__ import annotations

import base64
import struct

KIND = b"ssh-ed25519"
MAGIC = b"openssh-key-v1\0"
BEGIN = "-----BEGIN OPENSSH PRIVATE KEY-----"
END = "-----END OPENSSH PRIVATE KEY-----"


def format_private_key(pair: bytes) -> str:
    """Return the file of a key that is given as its seed and its public half, 32 bytes each."""
    public = encode_field(KIND) + encode_field(pair[32:])
    private = bytes(8) + public + encode_field(pair) + encode_field(b"") + bytes(range(1, 6))
    plain = encode_field(b"none") * 2 + encode_field(b"")
    whole = MAGIC + plain + struct.pack(">I", 1) + encode_field(public) + encode_field(private)
    line = base64.b64encode(whole).decode()
    rows = [line[start : start + 70] for start in range(0, len(line), 70)]
    return "\n".join([BEGIN, *rows, END, ""])


def format_public_key(public: bytes) -> str:
    """Return the line "ssh-ed25519 AAAA..." of the public half."""
    return f"{KIND.decode()} {base64.b64encode(encode_field(KIND) + encode_field(public)).decode()}"


def encode_field(value: bytes) -> bytes:
    """Return a value with its length before it."""
    return struct.pack(">I", len(value)) + value
