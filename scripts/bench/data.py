"""Speed of the data: waiting for a slow store with and without reading ahead, reading windows, preparing text.

    python scripts/bench/data.py [--steps 40] [--quick]

Needs the test dependencies (moto, tokenizers). Reading is compared with numpy's copy of the same windows from a
mapped file; `prepare` with the tokenizer library's own call on the same text, as wall time in the table and as CPU
time in the target.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import numpy as np
from context import print_context
from support.s3 import s3_server
from support.slow_proxy import slow_proxy

from trainer.commands.prepare import run as prepare
from trainer.config import DataConfig
from trainer.data.batches import BatchLoader
from trainer.data.corpus import Corpus, open_corpus
from trainer.order import RowOrder
from trainer.shape.mesh import RowShare

BATCH, SEQ_LEN = 16, 1024
LATENCY = 0.03  # seconds; of a bucket in the same region
WORK = 0.08  # seconds that a step computes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--quick", action="store_true", help="little text, two steps, no targets")
    options = parser.parse_args()
    steps: int = 2 if options.quick else options.steps
    print_context(quick=options.quick)
    print(f"rows of {SEQ_LEN} tokens, {BATCH} a step\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text, tokenizer = _text(folder, 1 << 18 if options.quick else 1 << 20)
        rates = _prepare(folder, text, tokenizer)
        reading = _reading(folder, text, steps)
        waits = _waits(folder, steps)
    if options.quick:
        return 0
    met = [
        _target("prepare, 1 worker, relative to the library on 1 core", rates, at_least=0.7),
        _target("reading shards relative to numpy's copy", reading, at_least=0.3),
        _target("share of the wait that reading ahead removes", waits, at_least=0.9),
    ]
    return 0 if all(met) else 1


def _text(folder: Path, size: int) -> tuple[Path, Path]:
    """Make 6 files of `size` bytes of text, and a tokenizer of at most 8,192 tokens trained on two of them."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    corpus = open_corpus(DataConfig(), print)
    place = folder / "text"
    place.mkdir()
    for number in range(6):
        data = corpus.read(np.array([number * size]), size)[0].tobytes()
        (place / f"{number:02d}.txt").write_text(data.decode(errors="replace"))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=8192, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train([str(place / "00.txt"), str(place / "01.txt")], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    return place, folder / "tokenizer.json"


def _prepare(folder: Path, text: Path, tokenizer: Path) -> float:
    """Print MB of text per second, and return one worker's rate relative to the library's, in CPU time."""
    from tokenizers import Tokenizer

    strings = [path.read_text(errors="replace") for path in sorted(text.iterdir())]
    size = sum(len(string.encode()) for string in strings) / 1e6
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    library: Any = Tokenizer.from_file(str(tokenizer))
    rows: list[tuple[str, float]] = []
    spent: list[float] = []

    def measure(name: str, call: Callable[[], object]) -> None:
        before = _spent()
        rows.append((name, size / _seconds(call)))
        spent.append(_spent() - before)

    measure("the library, 1 core", lambda: library.encode_batch_fast(strings))
    for name, words in (
        ("prepare tokenizer=bytes", ["workers=1"]),
        ("prepare BPE, 1 worker", [f"tokenizer={tokenizer}", "workers=1"]),
        ("prepare BPE, 2 workers", [f"tokenizer={tokenizer}", "workers=2"]),
    ):
        place = str(folder / name.replace(" ", "-"))
        measure(name, lambda place=place, words=words: _quietly([str(text), place, *words]))
    _table(f"encoding {size:.0f} MB of text", "MB/s", rows)
    return spent[0] / spent[2]


def _spent() -> float:
    """Return the CPU seconds of this process and of those that it has started and that have ended."""
    times = os.times()
    return sum(times[:4])


def _quietly(words: Sequence[str]) -> None:
    with redirect_stdout(StringIO()):
        prepare(words)


def _reading(folder: Path, text: Path, steps: int) -> float:
    """Print million tokens per second, and return the rate from shards relative to numpy's copy."""
    shards = folder / "prepare-BPE,-1-worker"
    corpus = open_corpus(DataConfig(source=str(shards)), print)
    mapped = np.memmap(shards / "shard-00000.bin", dtype=np.uint16, mode="r")

    def windows(source: Corpus) -> list[np.ndarray[Any, Any]]:
        """Compute the positions beforehand, because that takes longer than what is compared here."""
        order = RowOrder(total=source.total_tokens, batch=BATCH, seq_len=SEQ_LEN, seed=0)
        return [order.positions(step, 0, BATCH) for step in range(steps)]

    def copied() -> None:
        for positions in begins:
            for at in positions.tolist():
                mapped[at : at + SEQ_LEN + 1].copy()

    def read(source: Corpus) -> Callable[[], None]:
        begins = windows(source)
        return lambda: [source.read(positions, SEQ_LEN + 1) for positions in begins] and None

    begins = windows(corpus)
    tokens = steps * BATCH * SEQ_LEN / 1e6
    plain = open_corpus(DataConfig(source=str(text)), print)
    rows = [
        ("numpy's copy of windows", tokens / _best(copied)),
        ("shards", tokens / _best(read(corpus))),
        ("text files", tokens / _best(read(plain))),
    ]
    _table("reading windows", "million tokens/s", rows)
    return rows[1][1] / rows[0][1]


def _waits(folder: Path, steps: int) -> float:
    """Print milliseconds per step, and return the share of the wait that data.ahead=2 removes."""
    shards = folder / "prepare-BPE,-1-worker"
    rows: list[tuple[str, float]] = []
    with _far_bucket(shards) as source:
        for ahead in (0, 1, 2):
            corpus = open_corpus(DataConfig(source=source), print)
            batches = BatchLoader(
                corpus,
                RowOrder(total=corpus.total_tokens, batch=BATCH, seq_len=SEQ_LEN, seed=0),
                RowShare(0, 1, 1),
                ahead,
            )
            batches.take_rows(0)
            before = batches.wait_seconds
            for step in range(1, steps + 1):
                time.sleep(WORK)
                batches.take_rows(step)
            rows.append((f"data.ahead={ahead}", (batches.wait_seconds - before) / steps * 1000))
            batches.close()
    title = f"waiting for a bucket that is {LATENCY * 1000:.0f} ms away; a step computes for {WORK * 1000:.0f} ms"
    _table(title, "ms a step", rows)
    return 1 - rows[2][1] / rows[0][1]


@contextmanager
def _far_bucket(shards: Path) -> Iterator[str]:
    """Put the shards into a slow bucket, and disable the cache that would hold a small corpus in memory."""
    from trainer.data import readers

    with s3_server() as server:
        os.environ.update(server.environment)
        server.create_bucket("bench")
        for path in shards.iterdir():
            server.client.put_object(Bucket="bench", Key=f"tokens/{path.name}", Body=path.read_bytes())
        with slow_proxy(int(server.url.rsplit(":", 1)[1]), LATENCY) as proxy:
            os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{proxy.port}"
            kept = readers._KEPT_WHOLE
            readers._KEPT_WHOLE = 0
            try:
                yield "s3://bench/tokens"
            finally:
                readers._KEPT_WHOLE = kept


def _seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _best(call: Callable[[], object]) -> float:
    return min(_seconds(call) for _ in range(5))


def _table(title: str, unit: str, rows: Sequence[tuple[str, float]]) -> None:
    print(f"{title} ({unit})")
    for name, value in rows:
        print(f"  {name:<28} {value:10.1f}   {value / rows[0][1]:6.2f} x")
    print()


def _target(what: str, found: float, at_least: float) -> bool:
    print(f"{'ok  ' if found >= at_least else 'MISS'} {what}: {found:.2f}, target {at_least}")
    return found >= at_least


if __name__ == "__main__":
    raise SystemExit(main())
