"""The scripts with which a host gets at a bucket path: copied to its own disk (COPY), or mounted there (MOUNT).

On a host the credentials are those of its service account or instance profile, which the tools take from the metadata
server; the laptop's never go there. Also the script that makes a host's local disks one folder.
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


def render_mount(inputs: MountInputs, *, may_install: bool, scratch: str = "") -> str:
    """The script that mounts a folder of a bucket, by the tool of its service.

    gs:// with gcsfuse, s3:// with Mountpoint and only to be read. may_install: the host is rented, so the tool may be
    added. scratch: a folder on fast local disk, for what Mountpoint keeps; "" where there is none. Raises UserError for
    a source or a destination that cannot be.
    """
    scheme, _, path = inputs.source.partition("://")
    bucket, _, key = path.partition("/")
    if scheme not in ("gs", "s3") or not bucket:
        raise UserError(
            f"cannot mount {inputs.source!r} on a host",
            "hosts mount gs:// buckets with gcsfuse, and s3:// buckets with Mountpoint, to be read",
            "write for example gs://NAME/data, or mode: COPY",
        )
    destination, under_home = _place(inputs.destination)
    more = {"scratch": scratch} if scheme == "s3" else {}
    return fill(
        "mount/gcsfuse.sh.j2" if scheme == "gs" else "mount/mountpoint.sh.j2",
        source=inputs.source,
        bucket=bucket,
        key=key.strip("/"),
        destination=destination,
        under_home=under_home,
        may_install="yes" if may_install else "no",
        **more,
    )


def render_scratch(folder: str) -> str:
    """The script that makes the empty local NVMe disks of an EC2 instance one file system, mounted at `folder`.

    Only for machines that are rented. It leaves alone what has a file system, a partition or a signature, and does
    nothing where AWS's image has mounted the disks itself. Source: EC2 documentation, "SSD instance store volumes".
    """
    if not folder.startswith("/"):
        raise ValueError(f"local disks are mounted at an absolute path, not at {folder!r}")
    return fill("mount/scratch.sh.j2", scratch=folder)


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
