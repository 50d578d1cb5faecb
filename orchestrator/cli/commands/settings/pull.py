"""`orch pull`: download a run's checkpoint."""

from __future__ import annotations

from pathlib import Path

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.client.choose import open_documents


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch pull mine", "the newest complete checkpoint of the last run of cluster 'mine'"),
        ("orch pull mine-k3x9q ./weights --step 1200", "one step of one run, into a folder of your choice"),
        ("orch pull gs://my-runs/mine-k3x9q --export", "also as a folder that Hugging Face's libraries read"),
    ],
)
@click.argument("name", metavar="NAME|RUN_ID|URI")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--step", type=click.IntRange(min=0), help="This checkpoint instead of the newest complete one.")
@click.option("--bucket", metavar="URI", help="Bucket of the run, when this computer has no record of it.")
@click.option("--export", "exported", is_flag=True, help="Also write the weights for Hugging Face's transformers.")
@click.option("-y", "--yes", is_flag=True, help="Download also what costs much: see docs/cost.md.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Form of the output.")
def pull(
    name: str, folder: Path | None, step: int | None, bucket: str | None, exported: bool, yes: bool, output: str
) -> None:
    """Download the newest complete checkpoint of a run into FOLDER (default: its run id), and verify it.

    Files that are here and complete are not downloaded again, so the same command resumes an interrupted pull.
    """
    import time

    from orchestrator import formatting
    from orchestrator.cli.drawing.terminal import write_stderr
    from orchestrator.cli.drawing.transfer_progress import TransferProgress
    from orchestrator.cli.execution.transfer_consent import agree_to_download
    from orchestrator.engine.operations import checkpoints as engine

    with open_documents() as documents:
        run = documents.locate_run(name, bucket)
    target = folder or Path(run.run_id)
    reporter, begun = TransferProgress(), time.monotonic()
    pulled = engine.download_checkpoint(
        run, target, step, reporter.show_transfer, lambda size: agree_to_download(run.bucket.uri, size, agreed=yes)
    )
    for skipped in pulled.skipped:
        write_stderr(f"skipped step {skipped.step}: {skipped.reason}")
    took = formatting.format_duration(time.monotonic() - begun)
    came = f"{formatting.format_size(pulled.fetched)} in {took}" if pulled.fetched else "nothing: it was here already"
    reporter.finish(f"checkpoint {pulled.checkpoint.step} is in {pulled.folder}; fetched {came}")
    llama: Path | None = None
    if exported:
        llama = target / f"{pulled.folder.name}-llama"
        if llama.exists():
            write_stderr(f"{llama} exists already and was not changed")
        else:
            *notes, said = engine.export_checkpoint(pulled, llama, reporter.show_seconds(f"writing {llama}"))
            reporter.finish(said)
            for note in notes:
                write_stderr(note)
    if output == "json":
        import json

        shown = {
            "version": 1,
            "kind": "pull",
            "run_id": run.run_id,
            "step": pulled.checkpoint.step,
            "folder": str(pulled.folder),
        }
        shown |= {"fetched": pulled.fetched, "size": pulled.checkpoint.size, "export": str(llama) if llama else None}
        click.echo(json.dumps(shown, indent=2))
        return
    click.echo(llama or pulled.folder)
