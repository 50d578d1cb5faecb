"""Ask orch itself for the plan of each machine of a run: what is taken, where, and its price. Nothing is sent."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from orchestrator.acceptance.process import Surroundings, run_orch
from orchestrator.acceptance.steps import Request, launch_words, write_files
from orchestrator.errors import UserError

_PLAN_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """The machines of one cluster.

    Attributes:
        price: US dollars an hour: the highest of all places that may be tried.
    """

    cluster: str
    machine: str
    place: str
    price: float


def read_quotes(request: Request, surroundings: Surroundings) -> tuple[Quote, ...]:
    """Write the files of a run, and return what each cluster would be.

    Raises:
        UserError: A launch would be refused, or a price is not known.
    """
    for name, text in write_files(request).items():
        (surroundings.folder / name).write_text(text, encoding="utf-8")
    first = _read_quote(request, surroundings, request.name, "cpu.yaml")
    second = Quote(cluster=request.second, machine=first.machine, place=first.place, price=first.price)
    if request.bucket:
        _read_quote(request, surroundings, request.name, "train.yaml", "--bucket", request.bucket)
    chips = [
        _read_quote(
            request, surroundings, request.accelerator_cluster(number), "accelerator.yaml", "--accelerators", name
        )
        for number, name in enumerate(request.accelerators, 1)
    ]
    return (first, second, *chips)


def _read_quote(request: Request, surroundings: Surroundings, cluster: str, file: str, *more: str) -> Quote:
    words = (*launch_words(request, file, cluster, *more), "--dry-run", "-o", "json")
    output = run_orch(surroundings, "plan", words, seconds=_PLAN_SECONDS)
    try:
        document: dict[str, Any] = json.loads(output.out)
    except ValueError:
        command = " ".join(("orch", *words))
        raise UserError(f"{command} failed", output.err.strip() or output.out, f"see it alone: {command}") from None
    refusal = document.get("refusal") or document.get("error")
    if refusal or output.status:
        said: dict[str, Any] = refusal or {}
        why = said.get("why") or said.get("what") or output.err
        raise UserError(
            f"{file} would be refused: {said.get('what', '')}".rstrip(": "),
            str(why),
            str(said.get("next_step") or said.get("next") or ""),
        )
    candidates: list[dict[str, Any]] = document["wanted"]["candidates"]
    prices = [one["price_per_hour"] for one in candidates]
    if not candidates or None in prices:
        raise UserError(
            f"the price of {cluster} is not known, so that no cap can hold",
            f"in {request.place}",
            "choose a place with a list price: --infra PLACE   orch accelerators shows prices",
        )
    first = candidates[0]
    place = "/".join(filter(None, (request.cloud, first["region"], first["zone"])))
    return Quote(cluster=cluster, machine=first["accelerator"], place=place, price=max(prices))
