"""`orch pull`: a run's checkpoint, brought home."""

from __future__ import annotations

from pathlib import Path

import click

from orchestrator.cli.command import OrchCommand


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch pull mine", "the newest whole checkpoint of the last run of cluster 'mine'"),
        ("orch pull mine-k3x9q ./weights --step 1200", "one step of one run, into a folder of your choice"),
        ("orch pull gs://my-runs/mine-k3x9q --export", "also as a folder that Hugging Face's libraries read"),
    ],
)
@click.argument("name", metavar="NAME|RUN_ID|URI")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--step", type=click.IntRange(min=0), help="This checkpoint instead of the newest whole one.")
@click.option("--bucket", metavar="URI", help="Where the run is, when this computer does not know it.")
@click.option("--export", "exported", is_flag=True, help="Also write the weights as a Hugging Face Llama.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Form of the output.")
def pull(name: str, folder: Path | None, step: int | None, bucket: str | None, exported: bool, output: str) -> None:
    """Fetch a run's newest whole checkpoint into FOLDER (default: its run id), verified. What is there and whole is not
    fetched again, so an interrupted pull goes on where it was."""
    import time

    from orchestrator.cli import human
    from orchestrator.cli.progress import Reporter
    from orchestrator.cli.terminal import say
    from orchestrator.engine import pull as engine

    wanted = engine.find_run(name, bucket)
    home = folder or Path(wanted.run_id)
    reporter, begun = Reporter(), time.monotonic()
    pulled = engine.pull(wanted, home, step, reporter.update)
    for skipped in pulled.skipped:
        say(f"passed over step {skipped.step}: {skipped.reason}")
    took = human.duration(time.monotonic() - begun)
    came = f"{human.size(pulled.fetched)} in {took}" if pulled.fetched else "nothing: it was here"
    reporter.end(f"checkpoint {pulled.checkpoint.step} is in {pulled.folder}; fetched {came}")
    llama: Path | None = None
    if exported:
        llama = home / f"{pulled.folder.name}-llama"
        if llama.exists():
            say(f"{llama} is there already and was left alone")
        else:
            said = engine.export(pulled, llama, reporter.waiting(f"writing {llama}"))
            reporter.end(said)
    if output == "json":
        import json

        shown = {"format": 1, "run_id": wanted.run_id, "step": pulled.checkpoint.step, "folder": str(pulled.folder)}
        shown |= {"fetched": pulled.fetched, "size": pulled.checkpoint.size, "export": str(llama) if llama else None}
        click.echo(json.dumps(shown, indent=2))
        return
    click.echo(llama or pulled.folder)
