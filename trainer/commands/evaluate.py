"""`python -m trainer eval PLACE key=value ...`: the loss of a checkpoint on text that it was not trained on."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from trainer.environment import read_run, read_world
from trainer.errors import ConfigError, Exit
from trainer.options import list_keys, parse_config

if TYPE_CHECKING:
    from trainer.checkpoint.reader import Checkpoint
    from trainer.config import Config
    from trainer.data.held_out import HeldOutRows
    from trainer.evaluation import Evaluated
    from trainer.team import Team

SUMMARY = "the loss of a checkpoint on text that it was not trained on: eval PLACE [key=value ...] [--json]"

HELP = """\
  python -m trainer eval PLACE [key=value ...] [--json]

PLACE      file://, s3:// or gs:// folder of checkpoints, or a path; its newest intact one is taken. With /step-00001200
           at the end: that one.
key=value  as of a run. Model, data, batch and length are those of the checkpoint's run. Imported weights need data=.

Examples:
  python -m trainer eval s3://bucket/run1/checkpoints
  python -m trainer eval ./run1/checkpoints/step-00001200 eval.source=./test.txt eval.batches=100
  python -m trainer eval ./llama-1b data=./tokens
"""
_OF_THE_RUN = ("model.", "lora.", "data.", "eval.", "batch", "seq_len", "seed", "dtype")


def run(words: Sequence[str]) -> int:
    """Evaluate, in as many processes as the environment describes; rank 0 prints the result.

    Raises:
        ConfigError: The words are wrong.
        StorageError: The checkpoint cannot be read.
        DataError: The text cannot be read, or is too short.
    """
    from trainer.checkpoint.weights_export import find_checkpoint
    from trainer.console import Console
    from trainer.tcp_team import join_team

    as_json = "--json" in words
    place, settings = _split([word for word in words if word != "--json"])
    world = read_world(os.environ)
    report = Console(world).print_on_first if not as_json else _discard
    found = find_checkpoint(place, report)
    if found.manifest.data is None:
        settings = _name_data(place, settings)
    config = parse_config([*_list_settings(found.manifest.config), *settings])
    config = replace(config, eval=replace(config.eval, every=config.eval.every or 1))
    team = join_team(world, config.dist, f"eval {read_run(os.environ).identity}")
    try:
        evaluated = _evaluate(config, found, team)
        team.gather(None)  # no rank leaves while another still needs it
    finally:
        team.close()
    if world.is_first:
        result = {"step": found.manifest.step, **asdict(evaluated), "perplexity": evaluated.perplexity}
        text = json.dumps(result) if as_json else f"step {found.manifest.step}: {evaluated.format_line()}"
        sys.stdout.write(f"{text}\n")
    return Exit.OK


def _evaluate(config: Config, found: Checkpoint, team: Team) -> Evaluated:
    from trainer.checkpoint.session import load_state
    from trainer.data.mixture import hold_out_of_each, join_sources, open_sources
    from trainer.engines import choose_engine_and_device, open_engine, resolve_loss, set_vocabulary_size
    from trainer.evaluation import evaluate
    from trainer.shape.mesh import check_batch

    sources = open_sources(config.data, _discard)
    corpus = join_sources(config.data, sources)
    config = choose_engine_and_device(config)
    _, held_out = hold_out_of_each(config, sources, _discard)
    corpora = [corpus, *(rows.corpus for rows in held_out)]
    config = set_vocabulary_size(config, corpus.vocab, max(one.largest for one in corpora))
    config = resolve_loss(config, corpora)
    for rows in held_out:
        _refuse_trained_text(found.manifest.data, rows)
    engine = open_engine(config, team.world, team)
    check_batch(config, engine.mesh)
    load_state(found, engine, config)
    result = evaluate(engine, held_out)
    engine.close()
    return result


def _refuse_trained_text(trained: Mapping[str, Any] | None, rows: HeldOutRows) -> None:
    """Raise ConfigError for text that the checkpoint was trained on. Imported weights say of none."""
    from trainer.data.fingerprints import is_same_corpus

    for text in [] if trained is None else trained.get("sources") or [trained]:
        # The last token that was predicted may be the first that is read.
        if is_same_corpus(text["fingerprint"], rows.corpus.fingerprint) and rows.first < text["total_tokens"] - 1:
            raise ConfigError(
                f"this checkpoint was trained on {text['total_tokens']:,} tokens of {rows.corpus.source}, "
                f"and these rows begin at {rows.first:,}: name other text as eval.source"
            )


def _name_data(place: str, settings: Sequence[str]) -> list[str]:
    """Return the settings of an evaluation of imported weights, whose run is unknown, with the text that they name.

    Raises:
        ConfigError: They name none: the default would be text of other tokens.
    """
    given = {name: text for name, _, text in (word.partition("=") for word in settings)}
    if "data" in given or "data.source" in given:
        return list(settings)
    if "eval.source" not in given:
        raise ConfigError(
            f"{place} holds imported weights, which were trained on no text that is known here: name text of their "
            f"tokens: python -m trainer eval {place} data=FOLDER (`import` prints how to make it)"
        )
    return [*settings, f"data.source={given['eval.source']}"]


def _discard(_line: str) -> None:
    """Report nothing: what a run says about its data concerns no evaluation."""


def _split(words: Sequence[str]) -> tuple[str, list[str]]:
    places = [word for word in words if "=" not in word]
    if len(places) != 1:
        raise ConfigError("one place is needed: python -m trainer eval CHECKPOINTS [key=value ...]")
    return places[0], [word for word in words if word != places[0]]


def _list_settings(recorded: Mapping[str, Any]) -> list[str]:
    """Return the settings of a checkpoint's run that an evaluation has too, as words."""
    values = {
        key.name: replace(key, default=recorded[key.name]).default_text
        for key in list_keys()
        if key.name in recorded and key.name.startswith(_OF_THE_RUN)
    }
    return [f"{name}={text}" for name, text in values.items() if text]
