"""The scripts that give a host a bucket path: copied to its disk (COPY), or mounted there (MOUNT).

On a host the credentials are those of its service account or instance profile, which the tools read from the metadata
server; those of the user's computer are never sent. Also the script that joins a host's local disks in one folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestrator.catalog.installs import HostTool, host_tool
from orchestrator.errors import UserError
from orchestrator.render.templates import render_template


@dataclass(frozen=True, slots=True)
class MountInputs:
    """One bucket path on a host.

    Attributes:
        source: s3://, gs:// or file:// URI of a folder or an object.
        destination: absolute, or below the home directory.
        writable: a bucket of S3 is mounted for writing, as far as Mountpoint can; one of Google always is.
    """

    source: str
    destination: str
    writable: bool = False


def render_copy_mount(inputs: MountInputs) -> str:
    """Return the copy script. Raises UserError for an invalid source or destination."""
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
            "gcloud reads *, ? and [ as a pattern and cannot quote them",
            "name the folder above it",
        )
    destination = _place(inputs.destination)
    return render_template(
        "mount/copy.sh.j2",
        scheme=scheme,
        source=inputs.source,
        path=path,
        bucket=bucket,
        key="" if key.endswith("/") else key,  # a slash at the end means a folder
        destination=destination,
    )


def render_mount(inputs: MountInputs, *, may_install: bool, scratch: str = "", tool: HostTool | None = None) -> str:
    """Return the script that mounts a folder of a bucket: gs:// by gcsfuse, s3:// by Mountpoint.

    Args:
        inputs: source and destination.
        may_install: the host is rented, so a missing tool may be installed.
        scratch: a folder on fast local disk for Mountpoint's cache; "" for none.
        tool: what a host downloads when it has no such tool; None for the pinned version of the catalogue.

    Raises:
        UserError: the source or the destination is invalid.
    """
    scheme, _, path = inputs.source.partition("://")
    bucket, _, key = path.partition("/")
    if scheme not in ("gs", "s3") or not bucket:
        raise UserError(
            f"cannot mount {inputs.source!r} on a host",
            "hosts mount gs:// buckets with gcsfuse, and s3:// buckets with Mountpoint",
            "write for example gs://NAME/data, or mode: COPY",
        )
    destination = _place(inputs.destination)
    tool = tool or host_tool("gcsfuse" if scheme == "gs" else "mount-s3")
    more = {"scratch": scratch, "writable": inputs.writable} if scheme == "s3" else {}
    return render_template(
        "mount/gcsfuse.sh.j2" if scheme == "gs" else "mount/mountpoint.sh.j2",
        source=inputs.source,
        bucket=bucket,
        key=key.strip("/"),
        destination=destination,
        may_install="yes" if may_install else "no",
        version=tool.version,
        files=tool.rows,
        **more,
    )


def render_link_mount(inputs: MountInputs) -> str:
    """Return the script that links to a folder of this computer, which stands for the bucket that is mounted."""
    destination = _place(inputs.destination)
    path = inputs.source.removeprefix("file://")
    return render_template("mount/link.sh.j2", path=path, destination=destination)


def render_scratch(folder: str) -> str:
    """Return the script that joins the empty local NVMe disks of an EC2 instance in one file system at `folder`.

    Only for rented machines. It skips disks with a file system, a partition or a signature, and does nothing where
    AWS's image has mounted the disks already. Source: EC2 documentation, "SSD instance store volumes".
    """
    if not folder.startswith("/"):
        raise ValueError(f"local disks are mounted at an absolute path, not at {folder!r}")
    return render_template("mount/scratch.sh.j2", scratch=folder)


def bucket_path(place: Path, source: str) -> Path:
    """Return where a folder with the buckets of a simulated cloud has a bucket path."""
    scheme, _, rest = source.partition("://")
    parts = [part for part in rest.split("/") if part]
    if ".." in parts:
        raise UserError(f"{source} cannot stand for a folder", "it has `..` in it", "write the address without it")
    return place.joinpath(scheme, *parts)


def _place(destination: str) -> str:
    """Return the path: absolute, or below the home directory."""
    under_home = not destination.startswith("/")
    place = destination.removeprefix("~/").strip("/") if under_home else destination.rstrip("/")
    if place in ("", ".") or destination == "~":
        raise UserError(
            f"cannot put a bucket at {destination!r}",
            "it is the entire disk or home directory",
            "name a folder: ~/data",
        )
    if destination.startswith("~") and not destination.startswith("~/"):
        raise UserError(
            f"cannot put a bucket at {destination!r}",
            "only ~/ is supported, the home directory of the host's user",
            "write ~/NAME or an absolute path",
        )
    return f"~/{place}" if under_home else place
