"""The answers so far, and how the text of each becomes one: the same for options, typed lines and forms."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from orchestrator.errors import UserError
from orchestrator.formatting import parse_count, parse_deadline
from orchestrator.messages import count_noun, escape_controls
from orchestrator.providers.hosts.machines import parse_address
from orchestrator.task.errors import InvalidValueError, did_you_mean
from orchestrator.task.infra import ANY, HOSTS, LOCAL, Infra, parse_infra
from orchestrator.task.likely_secrets import is_likely_secret
from orchestrator.task.trainer_settings import load_settings

NONE = "none"  # what a person types for no folder, bucket or limit
LONGEST_PROGRAM, LONGEST_ANSWER = 10_000, 1_000  # characters
MOST_HOSTS = 1024
_TOKENS = re.compile(r"(?P<number>[0-9][0-9_,]*(?:\.[0-9]+)?)\s*(?P<unit>[kmbt]?)", re.IGNORECASE)
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_MOST_TOKENS = 10**15
_AMOUNT = re.compile(r"\$?[0-9]{1,9}(?:\.[0-9]{1,2})?")
_MACHINE = re.compile(  # as offers name them: `4 x p5.48xlarge, spot`
    r"(?:(?P<nodes>[0-9]{1,4}) x )?(?P<name>[A-Za-z0-9][A-Za-z0-9:._-]{0,79})(?:, (?P<market>spot|on demand))?"
)
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Answers; None for a question without one yet.

    Attributes:
        infra: The place as a task file names it.
        model: A preset of the bundled trainer; "" for an own program.
        program: The command of an own program; "" with a model.
        tokens: How many tokens the model is trained on.
        data: The text that it is trained on, a setting of the trainer.
        workdir: The folder of an own program; "" for none.
        setup: What prepares the hosts for an own program; "" for nothing, None for what its folder says.
        machine: The machine as a task file names it, or auto; "" where the place decides.
        num_nodes: How many of them.
        hosts: Machines of the user's own.
        bucket: Where checkpoints go; "" for nowhere.
        max_cost: US dollars for the whole run; 0 for no limit.
        idle_minutes: Minutes without a job after which rented machines are deleted; 0 for no limit.
        flops: What an own program computes, such as 1e21; "" where it is not known.
        memory: GiB that all chips of an own program need.
        budget: US dollars that the run may cost on a proposed machine; of a program of unknown size, an hour.
        by: When the run has to be done: a time from now, or a date; "" for any.
        name: Of the task; "" for a name that follows from the rest.
    """

    infra: str | None = None
    model: str | None = None
    program: str = ""
    tokens: int | None = None
    data: str = ""
    workdir: str | None = None
    setup: str | None = None
    machine: str | None = None
    num_nodes: int = 1
    hosts: tuple[str, ...] = ()
    use_spot: bool | None = None
    bucket: str | None = None
    max_cost: float | None = None
    idle_minutes: int = 30
    flops: str = ""
    memory: float = 0.0
    budget: float | None = None
    by: str = ""
    name: str = ""

    @property
    def place(self) -> Infra:
        """The place; only after its question."""
        return parse_infra(self.infra or LOCAL)

    @property
    def rents(self) -> bool:
        """Whether machines are rented there."""
        return not self.place.owned

    @property
    def knows_work(self) -> bool:
        """Whether it is known what is to be computed."""
        return bool(self.model or self.flops)


def take(draft: Draft, key: str, text: str) -> Draft:
    """Return the draft with one more answer.

    Args:
        draft: The answers so far.
        key: What is answered, a key of KEYS.
        text: The answer as it was typed, given or sent.

    Raises:
        UserError: It cannot be the answer.
    """
    longest = LONGEST_PROGRAM if key in ("program", "setup") else LONGEST_ANSWER
    _screen(key, text, longest)
    answer = text if key in ("program", "setup") else text.strip()
    try:
        return KEYS[key](draft, answer)
    except InvalidValueError as error:
        raise UserError(error.what, error.why, error.next_step) from error


def write_out_controls(text: str) -> str:
    """Return the text with every control character written out, those of colours too."""
    return escape_controls(text).replace("\x1b", "\\x1b")


def _screen(key: str, text: str, longest: int) -> None:
    """Raise UserError for a text that no person types."""
    what = f"the answer to `{key}`"
    if len(text) > longest:
        raise UserError(f"{what} has {len(text):,} characters", f"it has at most {longest:,}", "put it into a file")
    if (shown := write_out_controls(text)) != text:
        raise UserError(f"{what} has control characters", shown[:60], "type it without them")
    if key not in ("program", "setup") and "\n" in text:
        raise UserError(f"{what} has several lines", "it is one line", "type it on one line")


def _take_infra(draft: Draft, text: str) -> Draft:
    place = parse_infra(text)
    if place.provider == ANY:
        raise UserError("any cloud is not one place", "each has its own credentials", "name one of them")
    found = replace(draft, infra=str(place))
    return replace(found, machine="") if place.shape else found


def _take_model(draft: Draft, text: str) -> Draft:
    presets = list(load_settings().presets)
    if text not in presets:
        near = did_you_mean(text, presets)
        why = f"did you mean {near}?" if near else ""
        raise UserError(f"the trainer has no preset `{text[:40]}`", why, f"one of {', '.join(presets)}")
    return replace(draft, model=text, program="", workdir="")


def _take_program(draft: Draft, text: str) -> Draft:
    if not text.strip():
        raise UserError("the command is empty", "", "type it as in a shell: python train.py")
    pairs = (word.partition("=") for word in re.split(r"[\s;&|()\"'`]+", text))
    if secret := next((name for name, _, value in pairs if is_likely_secret(name.lstrip("-"), value or name)), ""):
        step = "leave it out, and give it to the launch: --secret NAME, which takes its value from your shell"
        shown = f"`{secret[:40]}`" if is_likely_secret(secret, "x") else "a part of it"
        raise UserError(f"{shown} of the command looks like a secret", "the task file would keep it", step)
    return replace(draft, model="", program=text, tokens=0)


def _take_tokens(draft: Draft, text: str) -> Draft:
    found = _TOKENS.fullmatch(text)
    number = re.sub("[_,]", "", found["number"]) if found else "0"
    tokens = round(float(number) * _UNITS[found["unit"].lower()]) if found and len(number) < 20 else 0
    if not 1 <= tokens <= _MOST_TOKENS:
        raise UserError(f"`{text[:40]}` is not a number of tokens", "1 to 1000T", "such as 500M, 1B or 2.5T")
    return replace(draft, tokens=tokens)


def _take_workdir(draft: Draft, text: str) -> Draft:
    return replace(draft, workdir="" if text.lower() == NONE else text)


def _take_machine(draft: Draft, text: str) -> Draft:
    """Take a machine, auto, or an offer; for this computer, a number of hosts; for own machines, their addresses."""
    if draft.infra is not None and draft.place.provider == LOCAL:
        if not text.isascii() or not text.isdigit():
            raise UserError(f"`{text[:40]}` is not a number of hosts", "", "1, or 4 to try several")
        return _take_infra(draft, f"{LOCAL}:{text}")
    if draft.infra is not None and draft.place.provider == HOSTS and not draft.hosts:
        return _take_hosts(draft, text)
    found = _MACHINE.fullmatch(text)
    if found is None:
        raise UserError(f"`{text[:40]}` is not the name of a machine", "", "orch accelerators   lists them")
    draft = _take_nodes(draft, found["nodes"]) if found["nodes"] else draft
    draft = _take_market(draft, found["market"]) if found["market"] else draft
    return replace(draft, machine=found["name"])


def _take_hosts(draft: Draft, text: str) -> Draft:
    hosts = tuple(word for word in re.split(r"[,\s]+", text) if word)
    if not hosts or len(hosts) > MOST_HOSTS:
        why = f"1 to {MOST_HOSTS} addresses, with commas between them"
        raise UserError(f"{count_noun(len(hosts), 'host')} named", why, "user@first,user@second")
    for host in hosts:
        parse_address(host)
    return replace(draft, hosts=hosts, machine=draft.machine or "")


def _take_nodes(draft: Draft, text: str) -> Draft:
    return replace(draft, num_nodes=_whole(text, "machines", 1, 4096))


def _take_market(draft: Draft, text: str) -> Draft:
    word = text.lower().replace("-", " ")
    if word not in ("spot", "on demand"):
        raise UserError(
            f"`{text[:40]}` is not a market", "machines are rented on demand or as spot", "on-demand, or spot"
        )
    return replace(draft, use_spot=word == "spot")


def _take_bucket(draft: Draft, text: str) -> Draft:
    return replace(draft, bucket="" if text.lower() == NONE else text)


def _take_max_cost(draft: Draft, text: str) -> Draft:
    return replace(draft, max_cost=_dollars(text))


def _take_budget(draft: Draft, text: str) -> Draft:
    return replace(draft, budget=_dollars(text) or None)


def _take_by(draft: Draft, text: str) -> Draft:
    now = time.time()
    try:
        left = parse_deadline(text, now) - now
    except (ValueError, OverflowError):
        raise UserError(f"`{text[:40]}` is not a time", "", "36h, 5d, or a date such as 2026-12-24") from None
    if left <= 0:
        raise UserError(f"`{text[:40]}` is over", "", "36h, or a later date")
    return replace(draft, by=text)


def _take_flops(draft: Draft, text: str) -> Draft:
    try:
        known = parse_count(text) > 0
    except ValueError:
        known = False
    if not known:
        raise UserError(f"`{text[:40]}` is not a number such as 1e21", "FLOPs of the whole run", "1e21")
    return replace(draft, flops=text)


def _take_memory(draft: Draft, text: str) -> Draft:
    if not _AMOUNT.fullmatch(text) or text.startswith("$"):
        raise UserError(f"`{text[:40]}` is not a number of GiB", "what all chips together need", "such as 320")
    return replace(draft, memory=float(text))


def _take_idle_minutes(draft: Draft, text: str) -> Draft:
    return replace(draft, idle_minutes=0 if text.lower() == NONE else _whole(text, "minutes", 1, 10_000_000))


def _take_name(draft: Draft, text: str) -> Draft:
    if not _NAME.fullmatch(text):
        why = "up to 63 letters, digits, `.`, `_` and `-`, with a letter or digit at both ends"
        raise UserError(f"`{text[:40]}` cannot be a task's name", why, "such as train-300m")
    return replace(draft, name=text)


def _dollars(text: str) -> float:
    if text.lower() == NONE:
        return 0.0
    if not _AMOUNT.fullmatch(text) or not float(text.lstrip("$")):
        raise UserError(f"`{text[:40]}` is not an amount in US dollars", "", f"such as 20, or {NONE}")
    return float(text.lstrip("$"))


def _whole(text: str, what: str, least: int, most: int) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9 or not least <= int(text) <= most:
        raise UserError(f"`{text[:40]}` is not a number of {what}", f"{least:,} to {most:,}", "write a whole number")
    return int(text)


KEYS: Mapping[str, Callable[[Draft, str], Draft]] = MappingProxyType(
    {
        "infra": _take_infra,
        "model": _take_model,
        "program": _take_program,
        "tokens": _take_tokens,
        "data": lambda draft, text: replace(draft, data=text),
        "workdir": _take_workdir,
        "setup": lambda draft, text: replace(draft, setup="" if text.strip().lower() == NONE else text),
        "machine": _take_machine,
        "num_nodes": _take_nodes,
        "hosts": _take_hosts,
        "market": _take_market,
        "bucket": _take_bucket,
        "max_cost": _take_max_cost,
        "idle_minutes": _take_idle_minutes,
        "flops": _take_flops,
        "memory": _take_memory,
        "budget": _take_budget,
        "by": _take_by,
        "name": _take_name,
    }
)
"""What can be answered, by name."""
