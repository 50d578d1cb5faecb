"""Combinations that cannot be: each field is right by itself, and together they make no sense.

One function for each rule; each yields the path to blame, what is wrong, why, and what to write.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from posixpath import normpath

from orchestrator.catalog.prices import price_per_hour
from orchestrator.formatting import format_amount
from orchestrator.messages import count_noun
from orchestrator.slices import OnDemand, Owned, Spot
from orchestrator.task import stacks
from orchestrator.task.driver_rules import load_rules
from orchestrator.task.errors import InvalidValueError, Issue, Path
from orchestrator.task.infra import HOSTS
from orchestrator.task.model import Order, Recovery, Task, TaskSection
from orchestrator.task.resources import Resources

# Set on every host by orch: SkyPilot documentation, "Environment variables", release 0.14.1, and docs/environment.md.
RESERVED = frozenset(
    {
        "SKYPILOT_SETUP_NODE_RANK",
        "SKYPILOT_SETUP_NODE_IPS",
        "SKYPILOT_SETUP_NUM_GPUS_PER_NODE",
        "SKYPILOT_NODE_RANK",
        "SKYPILOT_NODE_IPS",
        "SKYPILOT_NUM_GPUS_PER_NODE",
        "SKYPILOT_NUM_NODES",
        "SKYPILOT_TASK_ID",
        "SKYPILOT_CLUSTER_INFO",
    }
)


# What the templates take from the user where they cannot know better (docs/environment.md).
SETTABLE = frozenset(
    {
        "ORCH_DATA_CACHE",
        "ORCH_PYTHON",
        "ORCH_CONDA_URL",
        "ORCH_PYTHON_URL",
        "ORCH_RANKS_PER_HOST",
        "ORCH_LOCAL_RANKS_PER_MACHINE",
        "ORCH_AMAZON_DIR",
        "ORCH_EFA_CHECK",
        "ORCH_FABRIC_CHECK",
        "ORCH_NETWORK_CHECK",
        "ORCH_NETWORK_FLOOR",
        "ORCH_UNLOCKED_PACKAGES",
        "ORCH_NEURON_CHECK",
        "ORCH_TPU_CHECK",
        "ORCH_HOLDERS_CHECK",
        "ORCH_SCRATCH",
        "ORCH_DEV_DIR",
        "ORCH_SYS_DIR",
        "ORCH_VENVS_DIR",
        "ORCH_LIBTPU_LOCKFILE",
    }
)


def _issue(path: Path, what: str, why: str, next_step: str) -> Issue:
    return Issue(path=path, what=what, why=why, next_step=next_step)


def find_conflicts(task: Task, section: TaskSection, *, complete: bool = True) -> list[Issue]:
    """Return all broken rules.

    Args:
        task: The resolved task.
        section: The same as written, flags included.
        complete: Whether the task has all its candidates; without some of them, rules about all of them are skipped.
    """
    issues = [
        *_program(task),
        *_names(section),
        *_hosts(task, section),
        *_recovery(section),
        *_exit_codes(task),
        *_idle(task),
        *_fallback(task),
        *_growth(task),
    ]
    issues += [*_nodes(task, section), *_mounts(task), *_container(task)]
    for choice in task.choices:
        issues += [
            *_own_nodes(task, choice),
            *_labels(choice),
            *_market(choice),
            *_provisioning(choice),
            *load_rules(choice.machine.provider).find_machine_conflicts(choice),
            *load_rules(choice.infra.provider).find_conflicts(task, choice),
            *(_cost(task, choice) if complete else ()),
            *_stack(task, choice),
        ]
    if complete and not issues:
        issues += _mixed(task)
    return list(dict.fromkeys(issues))


def _program(task: Task) -> Iterator[Issue]:
    if task.run and task.train:
        options = [name for name in ("smoke", "allow_misfit") if name in task.train.model_fields_set]
        if options and set(options) == task.train.model_fields_set:
            why = "orch does not know the tests and memory of another program"
            for name in options:
                yield _issue(("train", name), f"`{name}` is for the bundled trainer", why, "remove it")
            return
        yield _issue(("train",), "`run` and `train` exclude each other", "both are the program", "keep one of them")


def _names(section: TaskSection) -> Iterator[Issue]:
    envs, secrets = section.envs, section.secrets
    for name in secrets:
        if name in envs:
            step = f"keep it in secrets and give it with --secret {name}"
            yield _issue(("secrets", name), f"`{name}` is in envs and in secrets", "", step)
    for part, names in (("envs", envs), ("secrets", secrets)):
        for name in names:
            if (name.startswith("ORCH_") and name not in SETTABLE) or name in RESERVED:
                yield _issue((part, name), f"`{name}` is set by orch on every host", "", "choose another name")


def _hosts(task: Task, section: TaskSection) -> Iterator[Issue]:
    on_hosts = {choice.infra.provider == HOSTS for choice in task.choices}
    if True in on_hosts and not task.hosts:
        yield _issue(
            ("resources", "infra"), "`infra: hosts` needs the hosts", "", "add hosts: {addresses: [user@host]}"
        )
    if section.hosts.model_fields_set and False in on_hosts:
        yield _issue(
            ("hosts",),
            "`hosts` is for infra: hosts only",
            f"here infra is {task.choices[0].infra}",
            "write infra: hosts",
        )
    every = [(host.host, host.port or 22) for host in task.hosts]
    for index, host in enumerate(every):
        if host in every[:index]:
            yield _issue(
                ("hosts", "addresses", index), f"`{task.hosts[index]}` is listed twice", "", "remove one of them"
            )
    for choice in task.choices if task.hosts and on_hosts == {True} else ():
        expected = task.num_nodes * choice.machine.hosts
        if len(task.hosts) != expected:
            what = f"{len(task.hosts)} hosts are listed and {expected} are requested"
            why = f"{task.num_nodes} x {choice.machine.name}, {count_noun(choice.machine.hosts, 'host')} each"
            yield _issue(("hosts", "addresses"), what, why, "list as many as num_nodes asks for")


def _nodes(task: Task, section: TaskSection) -> Iterator[Issue]:
    written = section.num_nodes
    for choice in task.choices:
        if written is not None and choice.infra.shape.isdigit():
            yield _issue(
                ("num_nodes",),
                f"infra: {choice.infra} already says how many hosts",
                f"num_nodes says {written}",
                "remove num_nodes, or write infra: local",
            )


def _own_nodes(task: Task, choice: Resources) -> Iterator[Issue]:
    """Refuse what not every candidate can have: a number of nodes, settings of the trainer."""
    counted = choice.infra.provider == HOSTS or choice.infra.shape.isdigit()
    if choice.num_nodes is not None and counted:
        what = f"`num_nodes` of a candidate on {choice.infra}, whose hosts are counted already"
        yield _issue(("resources",), what, "", "remove num_nodes")
    if choice.settings and task.train is None:
        why = "`settings` of a candidate are those of the bundled trainer"
        yield _issue(("resources",), "`settings` without a `train` section", why, "remove settings")


def _mounts(task: Task) -> Iterator[Issue]:
    seen: set[str] = set()
    for mount in task.file_mounts:
        path = ("file_mounts", mount.target)
        target = normpath(mount.target.strip().removeprefix("~/") or "/")
        if target in ("/", "~", ".") or ".." in mount.target.split("/"):
            yield _issue(path, f"`{mount.target}` cannot be the target of a mount", "", "write a path below ~ or /")
        if target in seen:
            yield _issue(path, f"`{mount.target}` is the target of two mounts", "", "remove one of them")
        seen.add(target)


def _container(task: Task) -> Iterator[Issue]:
    """Refuse containers for what runs beside the task's own commands, and candidates that differ in theirs."""
    images = {choice.container for choice in task.choices}
    if images <= {""}:
        return
    path = ("resources", "image_id")
    if len(images) > 1:
        yield _issue(
            path, "the candidates name different containers", "the script of all hosts is the same", "name one"
        )
    if task.train is not None:
        why = "it is copied to the host and installs its own packages"
        yield _issue(path, "the bundled trainer does not run in a container", why, "remove it, or write `run:`")


def _recovery(section: TaskSection) -> Iterator[Issue]:
    recovery, dialect = section.recovery, section.resources.job_recovery
    for name, alias in Recovery.aliases().items():
        both = name in recovery.model_fields_set and alias in dialect.model_fields_set
        if both and getattr(recovery, name) != getattr(dialect, alias):
            yield _issue(
                ("recovery", name),
                f"`recovery.{name}` and `resources.job_recovery.{alias}` differ",
                "they mean the same",
                "keep one of them",
            )


def _exit_codes(task: Task) -> Iterator[Issue]:
    recovery = task.recovery
    for code in sorted({*recovery.restart_on_exit_codes} & {*recovery.fail_on_exit_codes}):
        what = f"exit status {code} is in restart_on_exit_codes and in fail_on_exit_codes"
        yield _issue(("recovery", "fail_on_exit_codes"), what, "they exclude each other", "keep it in one of them")


def _idle(task: Task) -> Iterator[Issue]:
    limit = task.limits.idle_minutes
    stop = task.autostop
    if stop is not None and stop.wait_for == "none":
        why = "it would end machines whose job still runs"
        step = "write wait_for: jobs, or limits: {max_hours: HOURS} for a fixed lifetime"
        yield _issue(("resources", "autostop", "wait_for"), "`wait_for: none` is not served", why, step)
    if stop is not None and limit is not None and limit != stop.idle_minutes:
        yield _issue(
            ("limits", "idle_minutes"),
            f"idle for {limit} minutes and, in resources.autostop, for {stop.idle_minutes}",
            "both say when idle machines go",
            "keep one of them",
        )


def _growth(task: Task) -> Iterator[Issue]:
    """Refuse to grow without a checkpoint, or to machines on which the speed is not known."""
    if not (task.grow and task.choices):  # without choices the machines themselves are wrong
        return
    path = ("resources", "grow")
    if not (any(choice.estimate is not None for choice in task.choices) or _prefers_more_nodes(task)):
        why = "it needs a range of num_nodes or accelerators: auto"
        if task.train is None:
            why += ", or candidates with their num_nodes, more of a machine before fewer"
        step = f"num_nodes: {task.num_nodes}-{min(4 * task.num_nodes, 4096)}   or remove `grow`"
        yield _issue(path, "`grow: true` has nothing to grow to", why, step)
    elif not task.checkpoint.bucket:
        yield _issue(path, "`grow: true` needs checkpoints", "no bucket is given", "checkpoint: {bucket: gs://BUCKET}")


def _prefers_more_nodes(task: Task) -> bool:
    """Return whether an own program has more nodes of a machine before fewer: they are faster, by how much ever."""
    if task.train is not None:
        return False
    sizes: dict[tuple[str, str], int] = {}
    for choice in task.choices:
        machine, nodes = (choice.infra.provider, choice.machine.name), choice.num_nodes or task.num_nodes
        if nodes < sizes.setdefault(machine, nodes):
            return True
    return False


def _fallback(task: Task) -> Iterator[Issue]:
    if task.auto is not None and task.recovery.on_demand_fallback:
        path, why = ("recovery", "on_demand_fallback"), "it has machines on demand where they are worth their price"
        yield _issue(path, "`accelerators: auto` chooses the markets too", why, "remove it, or: only: [spot]")


def _labels(choice: Resources) -> Iterator[Issue]:
    """Labels must not say whose machines these are, and must be possible on the cloud."""
    path, provider = ("resources", "labels"), choice.infra.provider
    rules = load_rules(provider)
    for key, value in choice.labels:
        if key.lower().startswith("orch-"):
            why = "labels that begin with orch- say which orch may end the machines"
            yield _issue(path, f"`{key}` cannot be a label", why, "choose another name")
        elif (problem := rules.find_label_problem(key, value)) is not None:
            yield _issue(path, problem.what, problem.why, problem.next_step)
    most = rules.most_labels
    if most is not None and len(choice.labels) > most:
        why = f"{provider} has room for {most} beside those of orch"
        yield _issue(path, f"{len(choice.labels)} labels are too many", why, "remove some")


def _market(choice: Resources) -> Iterator[Issue]:
    if choice.use_spot and choice.infra.owned:
        why = "nothing is rented there, so nothing can be spot"
        yield _issue(
            ("resources", "use_spot"),
            f"`use_spot` with infra: {choice.infra}",
            why,
            "remove use_spot, or add --no-use-spot",
        )


def _provisioning(choice: Resources) -> Iterator[Issue]:
    """At most one way to get capacity, and what each of them needs."""
    args, path = choice.accelerator_args, ("resources", "accelerator_args")
    bound = args.provisioning in ("reservation-bound", "capacity-block")
    ways = {
        "use_spot": choice.use_spot,
        "reservation": bool(args.reservation) and not bound,
        f"provisioning: {args.provisioning}": bool(args.provisioning),
    }
    given = [name for name, requested in ways.items() if requested]
    if len(given) > 1:
        what = f"`{given[0]}` and `{given[1]}` exclude each other"
        yield _issue(path, what, "both say how capacity is got", "keep one of them")
    if bound and not args.reservation:
        block = "add reservation: cr-…   orch blocks find   and: orch blocks buy   get one"
        step = block if args.provisioning == "capacity-block" else "add reservation: NAME"
        yield _issue(path, f"`provisioning: {args.provisioning}` needs a reservation", "", step)
    if args.provisioning == "flex-start" and args.max_run_hours is None:
        why = "such machines are given for a time that is said beforehand, 7 days at most"
        yield _issue(path, "`provisioning: flex-start` needs max_run_hours", why, "add max_run_hours: 24")


def _cost(task: Task, choice: Resources) -> Iterator[Issue]:
    """Check that the cap leaves at least one candidate."""
    price, cap = over_cap(choice), choice.max_hourly_cost
    if price is not None and cap is not None and all(over_cap(other) is not None for other in task.choices):
        what = f"{choice.machine.name} costs {format_amount(price)} an hour, over max_hourly_cost"
        why = f"the cap is {format_amount(cap)}"
        yield _issue(("resources", "max_hourly_cost"), what, why, "raise max_hourly_cost, or ask for less")


def arrange_candidates(task: Task) -> Task:
    """Return the task without candidates over their cap; for any_of the cheapest first, unknown prices last."""
    kept = tuple(choice for choice in task.choices if over_cap(choice) is None)
    if task.order is Order.CHEAPEST:
        kept = tuple(sorted(kept, key=_known_price))
    return task.model_copy(update={"choices": kept})


def over_cap(choice: Resources) -> float | None:
    """Return the price of one slice an hour when it is known and above `max_hourly_cost`, else None."""
    price = _known_price(choice)
    over = choice.max_hourly_cost is not None and math.isfinite(price) and price > choice.max_hourly_cost
    return price if over else None


def _known_price(choice: Resources) -> float:
    """US dollars an hour for one slice, infinite when not known."""
    market = Owned() if choice.infra.owned else Spot() if choice.use_spot else OnDemand()
    price = price_per_hour(choice.machine, market, choice.infra.region, choice.infra.zone)
    return math.inf if price is None else price.low


def _stack(task: Task, choice: Resources) -> Iterator[Issue]:
    """Backend, engine, device and the image's framework must agree, and be possible on the machine."""
    if task.train is None:
        return
    try:
        stacks.choose_stack(choice.machine, task.train.stack_request(choice.accelerator_args.framework))
    except InvalidValueError as error:
        written = dict(task.train.args)
        named = next((name for name in ("engine", "device") if name in written), "")
        path = ("train", "backend") if task.train.backend != stacks.AUTO or not named else ("train", "args", named)
        yield _issue(path, error.what, error.why, error.next_step)


def _mixed(task: Task) -> Iterator[Issue]:
    """One stack for candidates that share their scripts, which those with own settings do not."""
    if task.train is None or task.differs_by_choice:
        return
    chosen = [
        stacks.choose_stack(choice.machine, task.train.stack_request(choice.accelerator_args.framework))
        for choice in task.choices
    ]
    for choice, stack in zip(task.choices[1:], chosen[1:], strict=True):
        if (stack.engine, stack.backend) != (chosen[0].engine, chosen[0].backend):
            what = f"{task.choices[0].machine.name} and {choice.machine.name} cannot be candidates of one training"
            why = f"the trainer runs there with {chosen[0].software}, and here with {stack.software}"
            yield _issue(("resources",), what, why, "write a task for each")
            return
