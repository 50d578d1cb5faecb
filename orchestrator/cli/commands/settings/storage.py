"""`orch storage`: list, copy, sync and delete objects in buckets."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import click

from orchestrator import formatting
from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import write_stdout
from orchestrator.cli.drawing.transfer_progress import TransferProgress
from orchestrator.cli.lazy_group import LazyCommand, LazyGroup, Section
from orchestrator.errors import NotFoundError, UserError
from orchestrator.messages import count_noun, join_some

if TYPE_CHECKING:
    from orchestrator.storage.bucket import Bucket
    from orchestrator.storage.objects import Listing, ObjectInfo
    from orchestrator.storage.sync import SyncPlan

_HERE = "orchestrator.cli.commands.settings.storage"

Mode: TypeAlias = Literal["do", "show"]


@click.group(
    "storage",
    cls=LazyGroup,
    sections=[
        Section(
            "Commands",
            (
                LazyCommand("ls", f"{_HERE}:list_command", "List a folder of a bucket, or one object."),
                LazyCommand("cp", f"{_HERE}:copy_command", "Copy between this computer and a bucket."),
                LazyCommand("sync", f"{_HERE}:sync_command", "Make one side's content equal to the other's."),
                LazyCommand("rm", f"{_HERE}:remove_command", "Delete one object or a folder of them."),
            ),
        )
    ],
    examples=[
        ("orch storage ls gs://my-bucket/runs", ""),
        ("orch storage cp gs://my-bucket/runs/a/metrics.jsonl .", ""),
        ("orch storage sync ./data s3://my-bucket/data --delete --dry-run", ""),
        ("orch storage rm -r file:///var/tmp/bucket/old-run --yes", ""),
    ],
)
def storage() -> None:
    """List buckets, and copy to and from them.

    A bucket is gs://NAME/FOLDER, s3://NAME/FOLDER or file:///FOLDER. Credentials and endpoints come from the
    environment, as the tools of the clouds read them.
    """


_dry_run = click.option(
    "--dry-run", "mode", flag_value="show", default="do", help="Print what would be done; change nothing."
)
_agreed = click.option("-y", "--yes", is_flag=True, help="Download also what costs much: see docs/cost.md.")
_recursive = click.option("-r", "--recursive", is_flag=True, help="Everything below the folder.")
_copy_links = click.option(
    "-L", "--copy-links", is_flag=True, help="Of a folder here, also send files outside of it that links lead to."
)


@click.command(
    "ls",
    cls=OrchCommand,
    examples=[
        ("orch storage ls gs://my-bucket", ""),
        ("orch storage ls -r s3://my-bucket/runs/a/checkpoints -o json", ""),
    ],
)
@click.argument("uri")
@_recursive
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Form of the output.")
def list_command(uri: str, recursive: bool, output: str) -> None:
    """List a folder of a bucket, or one object."""
    from orchestrator.engine.state.identities import open_project_bucket

    bucket = open_project_bucket(uri)
    if recursive and output == "text" and _print_objects(_objects_below(bucket)):
        return  # printed while it was read: it may be very long
    bucket, listing = _listing(uri, bucket, recursive)
    if output == "json":
        click.echo(_listing_json(bucket, listing))
        return
    for folder in listing.folders:
        write_stdout(f"{'folder':>10}  {'':20}  {folder}/")
    _print_objects(listing.objects)


@click.command(
    "cp",
    cls=OrchCommand,
    examples=[
        ("orch storage cp model.safetensors gs://my-bucket/models/", ""),
        ("orch storage cp s3://my-bucket/runs/a/environment.json -", ""),
        ("orch storage cp -r gs://my-bucket/runs/a/logs ./logs", ""),
    ],
)
@click.argument("source")
@click.argument("target")
@_recursive
@_copy_links
@_agreed
@_dry_run
def copy_command(source: str, target: str, recursive: bool, copy_links: bool, yes: bool, mode: Mode) -> None:
    """Copy between this computer and a bucket; one of the two sides is a bucket.

    A target that ends with a slash, or is a folder here, keeps the name of the file; `-` prints the object. With -r the
    content of SOURCE goes into TARGET, and files that are equal on both sides are not sent again.
    """
    if recursive:
        _sync(source, target, delete=False, copy_links=copy_links, mode=mode, yes=yes)
    elif _goes_up(source, target):
        _upload(Path(source), target, mode)
    else:
        _download(source, target, mode, yes=yes)


@click.command(
    "sync",
    cls=OrchCommand,
    examples=[
        ("orch storage sync ./data gs://my-bucket/data", ""),
        ("orch storage sync s3://my-bucket/runs/a/checkpoints ./checkpoints", ""),
        ("orch storage sync ./site s3://my-bucket/site --delete --dry-run", ""),
    ],
)
@click.argument("source")
@click.argument("target")
@click.option("--delete", is_flag=True, help="Also delete in TARGET what SOURCE does not have.")
@_copy_links
@_agreed
@_dry_run
def sync_command(source: str, target: str, delete: bool, copy_links: bool, yes: bool, mode: Mode) -> None:
    """Make the content of TARGET equal to that of SOURCE; one of the two is a bucket.

    Only new and changed files are sent; the same command resumes an interrupted sync. Links that lead out of a folder
    here are left out, unless --copy-links is given; links to folders always are.
    """
    _sync(source, target, delete=delete, copy_links=copy_links, mode=mode, yes=yes)


@click.command(
    "rm",
    cls=OrchCommand,
    examples=[
        ("orch storage rm gs://my-bucket/models/old.safetensors", ""),
        ("orch storage rm -r s3://my-bucket/runs/a --yes", ""),
    ],
)
@click.argument("uri")
@_recursive
@click.option("-y", "--yes", is_flag=True, help="Skip the question before the objects are deleted.")
@_dry_run
def remove_command(uri: str, recursive: bool, yes: bool, mode: Mode) -> None:
    """Delete one object, or with -r everything below a folder."""
    bucket, objects = _to_remove(uri, recursive)
    paths = [info.path for info in objects]
    size = formatting.format_size(sum(info.size for info in objects))
    if mode == "show":
        for path in paths:
            click.echo(f"delete {bucket.uri_of(path)}")
        _say(f"would delete {count_noun(len(paths), 'object')}, {size}; nothing was changed")
        return
    _confirm(f"delete {count_noun(len(paths), 'object')}, {size}, in {uri}", yes)
    bucket.delete_all(paths)
    _say(f"deleted {count_noun(len(paths), 'object')}, {size}")


def _listing(uri: str, bucket: Bucket, recursive: bool) -> tuple[Bucket, Listing]:
    """Return what `ls` shows, and the bucket its paths belong to."""
    from orchestrator.storage.objects import Listing

    if recursive:
        found = Listing((), tuple(_objects_below(bucket)))
    else:
        found = Listing((), ()) if _is_one_file(bucket) else bucket.list_dir()
    if found.folders or found.objects:
        return bucket, found
    if bucket.address.scheme == "file" and Path(bucket.address.container).is_dir():
        return bucket, found  # an empty folder
    if bucket.address.scheme != "file" and not bucket.address.prefix:
        return bucket, found  # an empty bucket
    parent, info = _one_object(uri)
    return parent, Listing((), (info,))


def _objects_below(bucket: Bucket) -> Iterable[ObjectInfo]:
    return () if _is_one_file(bucket) else bucket.list()


def _is_one_file(bucket: Bucket) -> bool:
    """Return whether the URI is an object of a file: bucket, which opens as a folder that is a file."""
    return bucket.address.scheme == "file" and Path(bucket.address.container).is_file()


def _one_object(uri: str, recursive: str = "") -> tuple[Bucket, ObjectInfo]:
    """Return an object; `recursive` is the command that takes a folder, for the message when it is one."""
    from orchestrator.engine.state.identities import open_project_bucket
    from orchestrator.storage.address import split_object

    folder, name = split_object(uri)
    bucket = open_project_bucket(folder)
    info = bucket.head(name)
    if info is None:
        below = bucket.list_dir(name) if recursive else None
        if below is not None and (below.folders or below.objects):
            raise UserError(f"{uri} is a folder", "", f"add -r: {recursive}")
        raise NotFoundError(f"{uri} does not exist", "", f"list the folder above: orch storage ls {folder}")
    return bucket, info


def _print_objects(objects: Iterable[ObjectInfo]) -> int:
    count = 0
    for info in objects:
        write_stdout(f"{formatting.format_size(info.size):>10}  {info.modified:%Y-%m-%dT%H:%M:%SZ}  {info.path}")
        count += 1
    return count


def _listing_json(bucket: Bucket, listing: Listing) -> str:
    import json

    objects = [
        {"path": info.path, "size": info.size, "modified": info.modified.isoformat(), "e_tag": info.version.e_tag}
        for info in listing.objects
    ]
    document = {"version": 1, "kind": "listing", "uri": bucket.uri}
    return json.dumps(document | {"folders": list(listing.folders), "objects": objects}, indent=2)


def _to_remove(uri: str, recursive: bool) -> tuple[Bucket, list[ObjectInfo]]:
    from orchestrator.engine.state.identities import open_project_bucket

    if not recursive:
        parent, info = _one_object(uri, f"orch storage rm -r {uri}")
        return parent, [info]
    bucket = open_project_bucket(uri)
    objects = list(_objects_below(bucket))
    if not objects:
        raise NotFoundError(f"{uri} is empty or does not exist", "", f"list it: orch storage ls {uri}")
    return bucket, objects


def _goes_up(source: str, target: str) -> bool:
    """Return True for local to bucket, False for bucket to local.

    Raises:
        UserError: Both sides or neither are a bucket.
    """
    from orchestrator.storage.address import is_bucket_uri

    if is_bucket_uri(source) == is_bucket_uri(target):
        both = "both are buckets" if is_bucket_uri(source) else "both are on this computer"
        step = "copy to a local folder first" if is_bucket_uri(source) else "use cp or rsync, or write file:///FOLDER"
        raise UserError(f"cannot copy {source} to {target}", f"{both}; one side must be a bucket", step)
    return is_bucket_uri(target)


def _upload(source: Path, target: str, mode: Mode) -> None:
    from orchestrator.engine.state.identities import open_project_bucket
    from orchestrator.storage.address import Address, split_object
    from orchestrator.storage.faults import translate_disk_errors

    if source.is_dir():
        raise UserError(f"{source} is a folder", "", f"add -r: orch storage cp -r {source} {target}")
    with translate_disk_errors(f"read {source}"):
        size = source.stat().st_size
    address = Address.parse(target)
    is_root = address.scheme != "file" and not address.prefix
    folder, name = (target, source.name) if target.endswith("/") or is_root else split_object(target)
    bucket = open_project_bucket(folder)
    if mode == "show":
        _show_copy(str(source), bucket.uri_of(name), size)
        return
    reporter = TransferProgress()
    bucket.upload_file(source, name, lambda count: reporter.show_file(name, count, size))
    reporter.finish(f"copied {source} to {bucket.uri_of(name)}, {formatting.format_size(size)}")


def _download(source: str, target: str, mode: Mode, *, yes: bool) -> None:
    from orchestrator.cli.execution.transfer_consent import agree_to_download

    bucket, info = _one_object(source, f"orch storage cp -r {source} {target}")
    agree_to_download(source, info.size, agreed=yes or mode == "show")
    if target == "-" and mode == "do":
        for chunk in bucket.read_chunks(info.path):
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
        return
    path = Path(target)
    if target.endswith("/") or path.is_dir():
        path /= info.path
    if mode == "show":
        _show_copy(source, target if target == "-" else str(path), info.size)
        return
    reporter = TransferProgress()
    bucket.download_file(info.path, path, lambda count: reporter.show_file(info.path, count, info.size))
    reporter.finish(f"copied {source} to {path}, {formatting.format_size(info.size)}")


def _show_copy(source: str, target: str, size: int) -> None:
    click.echo(f"copy {source} -> {target}  ({formatting.format_size(size)})")
    _say("nothing was changed")


def _sync(source: str, target: str, *, delete: bool, copy_links: bool, mode: Mode, yes: bool) -> None:
    from orchestrator.cli.execution.transfer_consent import agree_to_download
    from orchestrator.engine.state.identities import open_project_bucket
    from orchestrator.storage.sync import plan_download, plan_upload, run_sync

    if _goes_up(source, target):
        plan = plan_upload(Path(source), open_project_bucket(target), delete=delete, copy_links=copy_links)
    else:
        plan = plan_download(open_project_bucket(source), "", Path(target), delete=delete)
        if not plan.transfers and not plan.unchanged:
            raise NotFoundError(f"{source} is empty or does not exist", "", f"list it: orch storage ls {source}")
    if plan.direction == "down":
        agree_to_download(source, plan.size, agreed=yes or mode == "show")
    for path in plan.skipped:
        _say(f"skipped, not a regular file: {path}")
    if plan.outside:
        what = count_noun(len(plan.outside), "link")
        _say(f"skipped, {what} to files outside of {source}: {join_some(plan.outside)} (--copy-links sends them)")
    if plan.kept:
        what = count_noun(len(plan.kept), "file")
        _say(f"not deleted, {what} that an earlier --copy-links sent: {join_some(plan.kept)}")
        _say(f"to delete one: orch storage rm {plan.bucket.uri_of(plan.kept[0])}")
    if mode == "show":
        _show_plan(plan)
        return
    reporter = TransferProgress()
    run_sync(plan, reporter.show_transfer)
    reporter.finish(f"copied {_summary(plan)}")


def _show_plan(plan: SyncPlan) -> None:
    for transfer in plan.transfers:
        here, there = plan.folder / transfer.path, plan.bucket.uri_of(transfer.path)
        source, target = (here, there) if plan.direction == "up" else (there, here)
        click.echo(f"copy {source} -> {target}  ({formatting.format_size(transfer.size)}, {_REASONS[transfer.reason]})")
    for path in plan.deletes:
        click.echo(f"delete {plan.bucket.uri_of(path) if plan.direction == 'up' else plan.folder / path}")
    _say(f"would copy {_summary(plan)}; nothing was changed")


_REASONS = {"new": "new", "size": "other size", "content": "other content"}


def _summary(plan: SyncPlan) -> str:
    parts = [f"{count_noun(len(plan.transfers), 'file')}, {formatting.format_size(plan.size)}"]
    parts += [f"delete {len(plan.deletes)}"] if plan.deletes else []
    return ", ".join([*parts, f"{plan.unchanged} unchanged"])


def _confirm(what: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UserError(f"will not {what} without consent", "there is no terminal to ask on", "add --yes")
    if not click.confirm(f"{what}?", err=True):
        raise UserError("you declined", "nothing was deleted")


def _say(line: str) -> None:
    click.echo(line, err=True)
