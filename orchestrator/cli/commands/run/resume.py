"""`orch resume`: continue a run from its newest complete checkpoint."""

from __future__ import annotations

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.execution.act import ActMode, PreviewMode
from orchestrator.cli.execution.local_checks import carry_out_checked
from orchestrator.cli.execution.record_consent import RecordConsent
from orchestrator.cli.parameters.clusters import CLUSTER
from orchestrator.cli.parameters.shared import ACCEPT_HOST_KEY, LocalChecks, action_options, local_check_options
from orchestrator.client.choose import open_orders
from orchestrator.client.orders import Order, ResumeRecord


@click.command(
    cls=OrchCommand,
    examples=[
        ("orch resume mine", "the last run of cluster 'mine'; lost hosts are replaced"),
        ("orch resume mine-k3x9q --bucket gs://my-runs", "a run of another computer; asks, showing what would run"),
        (
            "orch resume mine-k3x9q --bucket gs://my-runs --expect sha256:5b0c... --allow ./src",
            "without a question, if the bucket still holds the record of the launch",
        ),
        (
            "orch resume mine-k3x9q --bucket gs://my-runs --take-over",
            "although another computer drives it",
        ),
        ("orch resume mine --trust-bucket", "also from checkpoints that this run did not sign, such as copies"),
        ("orch resume mine --dry-run", "what it would do"),
    ],
)
@click.argument("name", metavar="NAME|RUN_ID", type=CLUSTER)
@click.option("-c", "--cluster", type=CLUSTER, help="Run on this cluster instead.")
@click.option("--bucket", metavar="URI", help="Bucket of the run, when this computer has no record of it.")
@click.option(
    "--down/--no-down",
    default=None,
    help="Delete the hosts when the program has ended, successfully or not; default: as at its launch.",
)
@click.option("--force", is_flag=True, help="Resume even a run that has succeeded.")
@click.option("--expect", metavar="DIGEST", default="", help="Go on only if the bucket's record has this digest.")
@click.option(
    "--trust-bucket",
    is_flag=True,
    help="Run whatever the bucket's record says, and load its checkpoints although their run did not sign them.",
)
@click.option(
    "--allow",
    "allowed",
    metavar="NAME",
    multiple=True,
    help="Let the bucket's record use this path, variable or host, as the refusal names it; repeatable.",
)
@ACCEPT_HOST_KEY
@click.option("--take-over", is_flag=True, help="Drive the run from here although another computer drives it now.")
@local_check_options
@action_options(detachable=True, shows_output=True)
@click.pass_context
def resume(
    ctx: click.Context,
    name: str,
    cluster: str | None,
    bucket: str | None,
    down: bool | None,
    force: bool,
    expect: str,
    trust_bucket: bool,
    allowed: tuple[str, ...],
    accept_host_keys: bool,
    take_over: bool,
    local_checks: LocalChecks,
    mode: ActMode,
) -> None:
    """Resume a run from its newest complete checkpoint in the bucket, on the same hosts or new ones."""
    consent = RecordConsent(
        expected=expect, trust_bucket=trust_bucket, allowed=allowed, preview=isinstance(mode, PreviewMode)
    )
    consent.check_options(bucket)
    record = ResumeRecord(
        bucket=bucket,
        down=down,
        again=force,
        take_over=take_over,
        consent=consent,
        consent_to_load=consent.agree_to_load,
        notes=consent.notes,
    )
    here_only = {
        "--bucket": bucket,
        "--force": force,
        "--expect": expect,
        "--trust-bucket": trust_bucket,
        "--allow": allowed,
        "--accept-host-key": accept_host_keys,
        "--take-over": take_over,
        "--no-down": down is False,
        **local_checks.options,
    }
    order = Order(
        verb="resume",
        run=name,
        cluster=cluster or "",
        down=bool(down),
        accept_host_keys=accept_host_keys,
        record=record,
        here_only=here_only,
    )
    with open_orders() as orders:
        ctx.exit(carry_out_checked(orders, orders.plan(order), mode, local_checks))
