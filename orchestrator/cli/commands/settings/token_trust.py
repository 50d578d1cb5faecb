"""`orch token trust`: let jobs of a CI in by the tokens of that CI."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING

import click

from orchestrator.cli.command import OrchCommand
from orchestrator.cli.drawing.terminal import write_stderr
from orchestrator.cli.execution.served_commands import ON_SERVICE, refuse_option
from orchestrator.errors import ConflictError, UserError
from orchestrator.formatting import format_duration, parse_duration

if TYPE_CHECKING:
    from orchestrator.store.trust_records import TrustRule

_DAY = 86_400
# docs.github.com/en/actions/reference/security/oidc, docs.gitlab.com/ci/secrets/id_token_authentication (November 2026)
_ISSUERS = {"github": "https://token.actions.githubusercontent.com", "gitlab": "https://gitlab.com"}
_NAMES = frozenset({"repository", "project_path"})  # that another person may have later


@click.command(
    "trust",
    cls=OrchCommand,
    examples=[
        (
            "orch token trust release --issuer github --claim repository=org/name --claim ref=refs/heads/main",
            "jobs of the branch main",
        ),
        ("orch token trust nightly --issuer github --claim repository_id=7 --claim repository_owner_id=9", "by ids"),
        ("orch token trust train --issuer gitlab --claim project_id=7 --claim ref_protected=true --for 4h", ""),
        ("orch token trust ours --issuer https://ci.example.org --claim sub=job:7 --project vision", "any issuer"),
        ("orch token revoke release", "tokens that it gave end at their next request"),
    ],
)
@click.argument("name")
@click.option(
    "--issuer", required=True, metavar="URL", help="Whose tokens are exchanged: github, gitlab, or an address."
)
@click.option("--claim", "given", multiple=True, metavar="NAME=VALUE",
              help="What a token has to have, compared whole; repeatable, and all have to be there.")  # fmt: skip
@click.option("--role", type=click.Choice(["viewer", "member", "owner"]), default="member", show_default=True,
              help="viewer: reads; member: changes its own clusters; owner: changes all.")  # fmt: skip
@click.option("--member", default="", help="For whom jobs act; without it, ci-NAME.")
@click.option("--project", default="", help="The only project that they see and change; without it, every project.")
@click.option("--for", "life", default="1h", show_default=True, help="How long a token of theirs counts; at most 24h.")
@click.option("--days", type=click.IntRange(1, 3660), help="Until the rule expires; without it, until it is revoked.")
def trust_command(
    name: str, issuer: str, given: tuple[str, ...], role: str, member: str, project: str, life: str, days: int | None
) -> None:
    """Let jobs of a CI in by its own tokens: no secret of this service is stored there.

    One claim has to be of one repository or project: repository, repository_id, project_path, project_id or sub. A
    name can pass to another owner: ids of repository and owner cannot.
    """
    import uuid

    from orchestrator.engine.services import real_services
    from orchestrator.engine.state.opening import open_store
    from orchestrator.paths import load_paths
    from orchestrator.service.oidc_settings import is_safe_address
    from orchestrator.store.token_records import check_entry_names
    from orchestrator.store.trust_records import TrustRule, parse_claims

    why = "a rule makes the service read the keys of an address, and lets in whoever that one names"
    refuse_option("token", "trust", why, os.environ, ON_SERVICE)
    is_named, member = bool(member), member or _name_jobs(name)
    check_entry_names(name, member, project)
    address = _ISSUERS.get(issuer, issuer)
    if not is_safe_address(address):
        raise UserError(
            f"`--issuer {issuer[:60]}` is not the address of an issuer", "it begins with https://", "github"
        )
    now, where = time.time(), load_paths()
    rule = TrustRule(
        uid=uuid.uuid4().hex[:16], name=name, issuer=address, claims=parse_claims(given), member=member, role=role,
        project=project, seconds=_parse_life(life), created=now, expires=now + days * _DAY if days else None,
    )  # fmt: skip
    with open_store(where, real_services(where), "orch token trust") as store:
        if not is_named:
            _refuse_shared_member(rule, store.trust_rules())
        store.add_trust_rule(rule)
    write_stderr(
        f"jobs with these claims enter as {member} ({role}) for {format_duration(rule.seconds)} each",
        *(["  names can pass to another owner: add repository_owner_id or project_id"] if _by_names(rule) else []),
        f"  in the job: orch login URL --ci   (docs/service.md); take it back: orch token revoke {name}",
    )


def _refuse_shared_member(rule: TrustRule, rules: tuple[TrustRule, ...]) -> None:
    """Raise ConflictError where another rule, also one that was revoked, has the member that the name gives."""
    for other in rules:
        if other.member == rule.member and other.name != rule.name:
            what = f"the rule '{other.name}' has the member {rule.member}, too"
            raise ConflictError(what, "jobs of one would change clusters of the other", "name another one: --member")


def _by_names(rule: TrustRule) -> bool:
    return bool(_NAMES & rule.claims.keys()) and not any(claim.endswith("_id") for claim in rule.claims)


def _name_jobs(name: str) -> str:
    """Return for whom jobs of a rule act: each rule has its own, so that none changes clusters of another."""
    return f"ci-{re.sub(r'[^A-Za-z0-9._-]', '-', name)}"[:60]


def _parse_life(text: str) -> int:
    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = 0
    if not 60 <= seconds <= _DAY:
        raise UserError(
            f"`--for {text[:20]}` is not taken", "a token of a job counts for 1 minute to 24 hours", "--for 1h"
        )
    return int(seconds)
