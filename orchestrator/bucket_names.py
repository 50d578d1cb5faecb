"""The names that buckets in S3 and Cloud Storage can have: one rule for task files and for what opens a bucket."""

from __future__ import annotations

import re

# Amazon S3 User Guide, "General purpose bucket naming rules": 3 to 63 characters (old buckets in us-east-1 may have
# capitals, _ and 255). Cloud Storage, "Bucket naming guidelines": 3 to 63 characters, and 222 with dots. Both were
# read on 2026-11-26.
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.)){2,221}")
NAME_RULE = "it has 3 to 222 letters, digits, - _ and single dots, and begins with a letter or digit"


def is_bucket_name(name: str) -> bool:
    """Return whether a bucket of either cloud can have this name."""
    return _NAME.fullmatch(name) is not None
