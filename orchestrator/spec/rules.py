"""Combinations that cannot be: each field is right by itself, and together they make no sense.

One function for each rule; each yields the path to blame, what is wrong, why, and what to write.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from orchestrator.catalog.machines import Ec2Instance, TpuSlice
from orchestrator.catalog.prices import price_per_hour
from orchestrator.slices import OnDemand, Owned, Spot
from orchestrator.spec import stacks
from orchestrator.spec.errors import FormError
from orchestrator.spec.infra import Where
from orchestrator.spec.read import section, whole
from orchestrator.spec.schema import Issue
from orchestrator.spec.task import Mode, Order, Resources, Task
from orchestrator.spec.yaml_reader import Value

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
    }
)


# What the templates take from the user where they cannot know better (docs/environment.md).
SETTABLE = frozenset(
    {
        "ORCH_DATA_CACHE",
        "ORCH_PYTHON",
        "ORCH_RANKS_PER_HOST",
        "ORCH_LOCAL_RANKS_PER_MACHINE",
        "ORCH_EFA_CHECK",
        "ORCH_NEURON_CHECK",
        "ORCH_SCRATCH",
        "ORCH_DEV_DIR",
        "ORCH_SYS_DIR",
        "ORCH_VENVS_DIR",
        "ORCH_LIBTPU_LOCKFILE",
    }
)


def check(task: Task, data: Mapping[str, Value]) -> list[Issue]:
    """All broken rules. data: what was written, flags included."""
    issues = [*_program(task, data), *_names(data), *_hosts(task, data), *_recovery(data), *_idle(task)]
    issues += [*_nodes(task, data), *_mounts(task)]
    for choice in task.choices:
        issues += [
            *_market(choice),
            *_provisioning(choice),
            *_tpu(choice),
            *_ec2(task, choice),
            *_cost(task, choice),
            *_stack(task, choice),
        ]
    if not issues:
        issues += _mixed(task)
    return list(dict.fromkeys(issues))


def _program(task: Task, data: Mapping[str, Value]) -> Iterator[Issue]:
    if task.run and task.train:
        if set(section(data, "train")) == {"smoke"}:
            why = "a program of your own tests itself"
            yield Issue(("train", "smoke"), "`smoke` is for the bundled trainer", why, "remove it")
            return
        yield Issue(("train",), "`run` and `train` exclude each other", "both are the program", "keep one of them")


def _names(data: Mapping[str, Value]) -> Iterator[Issue]:
    envs, secrets = section(data, "envs"), section(data, "secrets")
    for name in secrets:
        if name in envs:
            step = f"keep it in secrets and give it with --secret {name}"
            yield Issue(("secrets", name), f"`{name}` is in envs and in secrets", "", step)
    for part, names in (("envs", envs), ("secrets", secrets)):
        for name in names:
            if (name.startswith("ORCH_") and name not in SETTABLE) or name in RESERVED:
                yield Issue((part, name), f"`{name}` is set by orch on every host", "", "choose another name")


def _hosts(task: Task, data: Mapping[str, Value]) -> Iterator[Issue]:
    listed = section(data, "hosts")
    wanted = {choice.infra.provider is Where.HOSTS for choice in task.choices}
    if True in wanted and not task.hosts:
        yield Issue(("resources", "infra"), "`infra: hosts` needs the hosts", "", "add hosts: {addresses: [user@host]}")
    if listed and False in wanted:
        yield Issue(
            ("hosts",),
            "`hosts` is for infra: hosts only",
            f"here infra is {task.choices[0].infra}",
            "write infra: hosts",
        )
    every = [(host.host, host.port) for host in task.hosts]
    for index, host in enumerate(every):
        if host in every[:index]:
            yield Issue(
                ("hosts", "addresses", index), f"`{task.hosts[index]}` is listed twice", "", "remove one of them"
            )
    for choice in task.choices if task.hosts and wanted == {True} else ():
        expected = task.num_nodes * choice.machine.hosts
        if len(task.hosts) != expected:
            what = f"{len(task.hosts)} hosts are listed and {expected} are asked for"
            why = f"{task.num_nodes} x {choice.machine.name}, {choice.machine.hosts} host(s) each"
            yield Issue(("hosts", "addresses"), what, why, "list as many as num_nodes asks for")


def _nodes(task: Task, data: Mapping[str, Value]) -> Iterator[Issue]:
    written = whole(data, "num_nodes")
    for choice in task.choices:
        if written is not None and choice.infra.shape.isdigit():
            yield Issue(
                ("num_nodes",),
                f"infra: {choice.infra} already says how many hosts",
                f"num_nodes says {written}",
                "remove num_nodes, or write infra: local",
            )


def _mounts(task: Task) -> Iterator[Issue]:
    seen: set[str] = set()
    for mount in task.file_mounts:
        path = ("file_mounts", mount.target)
        if mount.mode is not Mode.COPY and not mount.from_bucket:
            yield Issue(
                path,
                f"`{mount.source}` cannot be mounted with mode {mount.mode}",
                "only buckets can",
                "write mode: COPY",
            )
        if not mount.target.strip() or mount.target.rstrip("/") in ("", "~", "."):
            yield Issue(path, f"`{mount.target}` cannot be the target of a mount", "", "write a path below ~ or /")
        if mount.target.rstrip("/") in seen:
            yield Issue(path, f"`{mount.target}` is the target of two mounts", "", "remove one of them")
        seen.add(mount.target.rstrip("/"))


def _recovery(data: Mapping[str, Value]) -> Iterator[Issue]:
    resources, ours = section(data, "resources"), section(data, "recovery")
    dialect = section(resources, "job_recovery")
    pairs = (("max_restarts_on_errors", "max_failures"), ("recover_on_exit_codes", "restart_on_exit_codes"))
    for theirs, mine in pairs:
        here, there = dialect.get(theirs), ours.get(mine)
        here = [here] if mine == "restart_on_exit_codes" and isinstance(here, int) else here
        if here is not None and there is not None and here != there:
            yield Issue(
                ("recovery", mine),
                f"`recovery.{mine}` and `resources.job_recovery.{theirs}` differ",
                "they mean the same",
                "keep one of them",
            )


def _idle(task: Task) -> Iterator[Issue]:
    limit = task.limits.idle_minutes
    stop = task.autostop
    if stop is not None and limit is not None and limit != stop.idle_minutes:
        yield Issue(
            ("limits", "idle_minutes"),
            f"idle for {limit} minutes and, in resources.autostop, for {stop.idle_minutes}",
            "both say when idle machines go",
            "keep one of them",
        )


def _market(choice: Resources) -> Iterator[Issue]:
    if choice.use_spot and choice.infra.owned:
        why = "nothing is rented there, so nothing can be spot"
        yield Issue(
            ("resources", "use_spot"),
            f"`use_spot` with infra: {choice.infra}",
            why,
            "remove use_spot, or add --no-use-spot",
        )


def _provisioning(choice: Resources) -> Iterator[Issue]:
    """At most one way to get capacity, and what each of them needs."""
    args, path = choice.args, ("resources", "accelerator_args")
    bound = args.provisioning in ("reservation-bound", "capacity-block")
    ways = {
        "use_spot": choice.use_spot,
        "reservation": bool(args.reservation) and not bound,
        f"provisioning: {args.provisioning}": bool(args.provisioning),
    }
    given = [name for name, asked in ways.items() if asked]
    if len(given) > 1:
        what = f"`{given[0]}` and `{given[1]}` exclude each other"
        yield Issue(path, what, "both say how capacity is got", "keep one of them")
    if bound and not args.reservation:
        block = "add reservation: cr-…   orch blocks find   and: orch blocks buy   get one"
        step = block if args.provisioning == "capacity-block" else "add reservation: NAME"
        yield Issue(path, f"`provisioning: {args.provisioning}` needs a reservation", "", step)
    if args.provisioning == "flex-start" and args.max_run_hours is None:
        why = "such machines are given for a time that is said beforehand, 7 days at most"
        yield Issue(path, "`provisioning: flex-start` needs max_run_hours", why, "add max_run_hours: 24")


def _tpu(choice: Resources) -> Iterator[Issue]:
    if not isinstance(choice.machine, TpuSlice):
        return
    name = choice.machine.name
    if choice.images:
        step = "write accelerator_args: {runtime_version: ...}"
        yield Issue(
            ("resources", "image_id"), f"`image_id` has no meaning for {name}", "TPU VMs have runtime versions", step
        )
    if choice.network_tier == "best":
        why = "the chips of a slice have their own network"
        yield Issue(("resources", "network_tier"), f"`network_tier: best` has no meaning for {name}", why, "remove it")


def _ec2(task: Task, choice: Resources) -> Iterator[Issue]:
    machine, args = choice.machine, choice.args
    if not isinstance(machine, Ec2Instance) or choice.infra.provider is not Where.AWS:
        return
    if not (machine.on_demand or choice.use_spot or args.reservation):
        what = f"{machine.name} cannot be had on demand"
        step = "use_spot: true, or a capacity block: orch blocks find " + machine.name
        yield Issue(("resources", "use_spot"), what, "there is no such price for it (EC2 price list, July 2026)", step)
    if args.reservation and not choice.infra.zone:
        what, step = "a reservation is in one zone", "write infra: aws/REGION/ZONE"
        yield Issue(("resources", "infra"), what, f"infra is {choice.infra}", step)
    if task.aws.subnets and not choice.infra.region:
        what, step = "the region of the subnets is not said", "write infra: aws/REGION"
        yield Issue(("config", "aws", "subnets"), what, f"infra is {choice.infra}", step)


def _cost(task: Task, choice: Resources) -> Iterator[Issue]:
    """The cap must leave at least one candidate."""
    price = over_cap(choice)
    if price is not None and all(over_cap(other) is not None for other in task.choices):
        what = f"{choice.machine.name} costs ${price:,.2f} an hour, over max_hourly_cost"
        why = f"the cap is ${choice.max_hourly_cost:,.2f}"
        yield Issue(("resources", "max_hourly_cost"), what, why, "raise max_hourly_cost, or ask for less")


def arranged(task: Task) -> Task:
    """The task with candidates over their cap left out and, for any_of, the cheapest first, unknown prices last."""
    kept = tuple(choice for choice in task.choices if over_cap(choice) is None)
    if task.order is Order.CHEAPEST:
        kept = tuple(sorted(kept, key=_known_price))
    return replace(task, choices=kept)


def over_cap(choice: Resources) -> float | None:
    """The price of one slice an hour when it is known and above `max_hourly_cost`, else None."""
    price = _known_price(choice)
    over = choice.max_hourly_cost is not None and math.isfinite(price) and price > choice.max_hourly_cost
    return price if over else None


def _known_price(choice: Resources) -> float:
    """US dollars an hour for one slice, infinite when not known."""
    market = Owned() if choice.infra.owned else Spot() if choice.use_spot else OnDemand()
    price = price_per_hour(choice.machine, market, choice.infra.region)
    return math.inf if price is None else price.low


def _stack(task: Task, choice: Resources) -> Iterator[Issue]:
    """Backend, engine, device and the image's framework must agree, and be possible on the machine."""
    if task.train is None:
        return
    try:
        stacks.choose(choice.machine, task.train.asked(choice.args.framework))
    except FormError as error:
        written = dict(task.train.args)
        named = next((name for name in ("engine", "device") if name in written), "")
        path = ("train", "backend") if task.train.backend != stacks.AUTO or not named else ("train", "args", named)
        yield Issue(path, error.what, error.why, error.next_step)


def _mixed(task: Task) -> Iterator[Issue]:
    """One stack for every candidate of a training: its scripts are the same wherever it is placed at last."""
    if task.train is None:
        return
    chosen = [stacks.choose(choice.machine, task.train.asked(choice.args.framework)) for choice in task.choices]
    for choice, stack in zip(task.choices[1:], chosen[1:], strict=True):
        if (stack.engine, stack.backend) != (chosen[0].engine, chosen[0].backend):
            what = f"{task.choices[0].machine.name} and {choice.machine.name} cannot be candidates of one training"
            why = f"the trainer runs there with {chosen[0].what}, and here with {stack.what}"
            yield Issue(("resources",), what, why, "write a task for each")
            return
