"""The scripts with which a host gets at a bucket path: copied to its own disk (COPY), or mounted there (MOUNT).

On a host the credentials are those of its service account, which gcloud and gcsfuse take from the metadata server; the
laptop's never go there.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.errors import UserError
from orchestrator.render.templates import fill


@dataclass(frozen=True, slots=True)
class MountInputs:
    """source: s3://, gs:// or file:// URI of a folder or an object. destination: absolute, or below the home."""

    source: str
    destination: str


def render_copy_mount(inputs: MountInputs) -> str:
    """The copy script. Raises UserError for a source or a destination that cannot be."""
    scheme, separator, path = inputs.source.partition("://")
    if not separator or scheme not in ("s3", "gs", "file"):
        raise UserError(
            f"cannot copy {inputs.source!r} to a host",
            "a bucket begins with s3://, gs:// or file://",
            "write for example s3://my-bucket/data",
        )
    bucket, _, key = path.partition("/")
    if scheme == "file" and not path.startswith("/"):
        raise UserError(f"cannot copy {inputs.source!r} to a host", "file:// needs an absolute path", f"file:///{path}")
    if scheme != "file" and not bucket:
        raise UserError(f"cannot copy {inputs.source!r} to a host", "the bucket's name is missing", f"{scheme}://NAME")
    if scheme == "gs" and any(sign in path for sign in "*?["):
        raise UserError(
            f"cannot copy {inputs.source!r} to a host",
            "gcloud takes *, ? and [ as a pattern and offers no way to quote them",
            "name the folder above it",
        )
    destination, under_home = _place(inputs.destination)
    return fill(
        "mount/copy.sh.j2",
        scheme=scheme,
        source=inputs.source,
        path=path,
        bucket=bucket,
        key="" if key.endswith("/") else key,  # a slash at the end says that it is a folder
        destination=destination,
        under_home=under_home,
    )


def render_gcsfuse_mount(inputs: MountInputs, *, may_install: bool) -> str:
    """The script that mounts a folder of a gs:// bucket. may_install: the host is rented, so gcsfuse may be added.

    Raises UserError for a source or a destination that cannot be.
    """
    scheme, _, path = inputs.source.partition("://")
    bucket, _, key = path.partition("/")
    if scheme != "gs" or not bucket:
        raise UserError(
            f"cannot mount {inputs.source!r} on a host",
            "gcsfuse mounts gs:// buckets",
            "write for example gs://NAME/data",
        )
    destination, under_home = _place(inputs.destination)
    return fill(
        "mount/gcsfuse.sh.j2",
        source=inputs.source,
        bucket=bucket,
        key=key.strip("/"),
        destination=destination,
        under_home=under_home,
        may_install="yes" if may_install else "no",
    )


def _place(destination: str) -> tuple[str, bool]:
    """The path to quote, and whether it is below the home."""
    under_home = not destination.startswith("/")
    place = destination.removeprefix("~/").strip("/") if under_home else destination.rstrip("/")
    if place in ("", ".") or destination == "~":
        raise UserError(
            f"cannot put a bucket at {destination!r}", "it is the whole disk or home", "name a folder: ~/data"
        )
    if destination.startswith("~") and not destination.startswith("~/"):
        raise UserError(
            f"cannot put a bucket at {destination!r}",
            "only ~/ stands for a home, that of the host's user",
            "write ~/NAME or an absolute path",
        )
    return place, under_home
