"""What budgets say of a command before it is begun: the same as when it plans its slice, by the records of now."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.engine.state.recorded import open_reader
from orchestrator.errors import BudgetError
from orchestrator.next_step import NextStep
from orchestrator.plan.observed import Observed, Outcome
from orchestrator.plan.spending_budget import describe_left, measure_usage
from orchestrator.slices import Candidate, SliceState
from orchestrator.store.budget_records import find_refusal, list_billed_slices


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetReview:
    """What budgets say.

    Attributes:
        observed: With the candidates that no budget allows.
        refused: Why nothing of the command can be begun, or None.
        notes: What is left of each budget this month.
    """

    observed: Observed
    refused: BudgetError | None = None
    notes: tuple[str, ...] = ()


def review_budgets(
    cluster: str, candidates: tuple[Candidate, ...], observed: Observed, run_id: str | None, project: str
) -> BudgetReview:
    """Compare the slice that a command will plan or start with the budgets.

    Args:
        cluster: The cluster's name.
        candidates: One of which is planned where the cluster has no slice.
        observed: What is on record of it.
        run_id: The run for which it is, "" for a new one; None for none.
        project: The cluster's project; "" for that of the environment.
    """
    now = observed.now
    with open_reader(project) as reader:
        known = reader.cluster(cluster)
        owner = (known.owner if known is not None else "") or reader.member
        budgets = [one for one in reader.budgets() if one.covers(reader.project, owner)]
        if not budgets:
            return BudgetReview(observed=observed)
        slices = list_billed_slices(reader, now)
        notes = tuple(note for one in budgets if (note := describe_left(one, measure_usage(one, slices, now))))
        if (current := observed.current) is not None:
            starts = observed.slice_state is SliceState.STOPPED
            refused = (
                find_refusal(reader, budgets, current.candidate, now, run_id=run_id, starts=current.name)
                if starts
                else None
            )
            return BudgetReview(observed=observed, refused=refused, notes=notes)
        errors = [(one, find_refusal(reader, budgets, one, now, run_id=run_id)) for one in candidates]
    over = tuple((candidate, _to_outcome(error)) for candidate, error in errors if error is not None)
    if errors and len(over) == len(errors):
        return BudgetReview(observed=observed, refused=errors[0][1], notes=notes)
    notes += tuple(f"{one.where}: {outcome.what}: {outcome.why}" for one, outcome in over)
    return BudgetReview(observed=replace(observed, over_budget=over), notes=notes)


def _to_outcome(error: BudgetError) -> Outcome:
    return Outcome(
        status=int(error.exit_status),
        code=error.code,
        what=error.what,
        why=error.why,
        next_step=NextStep.parse(error.next_step),
    )
