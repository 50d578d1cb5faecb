"""`orch blocks` against a shop on the loopback, by real boto3 and the real `aws`: buying takes the exact price."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.block_shop import BlockShop, offering, open_shop

import orchestrator
from orchestrator.providers.aws import blocks as of
from orchestrator.providers.aws.parameters import revealed
from orchestrator.providers.offerings import recall

Orch = Callable[..., Any]
FIND = ("blocks", "find", "p5.48xlarge", "--nodes", "4", "--hours", "48", "--region", "us-east-1")


@pytest.fixture
def shop(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BlockShop]:
    made = BlockShop({"us-east-1": [offering("cb-2", "8000.00"), offering("cb-1", "7552.0000")]})
    with open_shop(made) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
        monkeypatch.setenv("COLUMNS", "200")  # one line a row
        yield made


def test_find_prints_the_cheapest_first_and_how_to_buy_it(orch: Orch, shop: BlockShop) -> None:
    said = orch(*FIND)
    assert said.status == 0, said.err
    head, first, second = said.out.splitlines()
    assert head.split()[0] == "PRICE"
    assert first.split()[:2] == ["$7,552.00", "39.33"] and first.endswith("cb-1")
    assert "11:30 UTC" in first and second.endswith("cb-2")
    assert "orch blocks buy cb-1" in said.err


def test_find_as_json_keeps_its_schema_and_nothing_found_is_no_capacity(orch: Orch, shop: BlockShop) -> None:
    schema = json.loads((Path(orchestrator.__file__).parent / "cli" / "data" / "blocks.schema.json").read_text())
    shown = json.loads(orch(*FIND, "-o", "json").out)
    jsonschema.Draft202012Validator(schema).validate(shown)
    assert [(one["id"], one["price"]) for one in shown["found"]] == [("cb-1", "7552.00"), ("cb-2", "8000.00")]
    none = orch(*FIND[:-3], "24", "--region", "us-west-2", "--latest", "2026-11-30", "-o", "json")
    assert none.status == 5 and "is for sale now in us-west-2" in none.err
    jsonschema.Draft202012Validator(schema).validate(json.loads(none.out))


def test_without_a_terminal_nothing_is_bought_unless_the_price_is_given_exactly(orch: Orch, shop: BlockShop) -> None:
    assert orch("blocks", "buy", "cb-1").status == 3, "not found by a search yet"
    orch(*FIND)
    said = orch("blocks", "buy", "cb-1")
    assert said.status == 2 and "--confirm 7552.00" in said.err
    assert "it cannot be cancelled" in said.err and "costs $7,552.00 immediately" in said.err
    wrong = orch("blocks", "buy", "cb-1", "--confirm", "7552")
    assert wrong.status == 2 and "nothing was bought" in wrong.err
    assert orch("blocks", "buy", "cb-1", "--region", "us-west-2", "--confirm", "7552.00").status == 2
    assert orch("blocks", "buy", "cb-1", "--yes").status == 2, "there is no such option"
    assert shop.sold == []


def test_a_bought_block_is_printed_for_the_task_file_and_listed_with_its_time(orch: Orch, shop: BlockShop) -> None:
    orch(*FIND)
    said = orch("blocks", "buy", "cb-1", "--confirm", "7552.00")
    assert said.status == 0, said.err
    assert said.out.splitlines()[-1].strip() == (
        "accelerator_args: {provisioning: capacity-block, reservation: cr-00000000000000000}"
    )
    (listed,) = orch("blocks", "list").out.splitlines()[1:]
    assert "cr-00000000000000000  4 x p5.48xlarge" in listed and "payment-pending" in listed and "begins in" in listed
    assert "block cr-00000000000000000  $7,552.00" in orch("cost").out, "paid whole, used or not"
    assert (
        json.loads(orch("blocks", "list", "--region", "us-east-1", "-o", "json").out)["found"][0]["state"]
        == "payment-pending"
    )


def test_a_price_that_rose_since_the_search_is_not_paid(orch: Orch, shop: BlockShop) -> None:
    orch(*FIND)
    shop.offerings["us-east-1"][1]["UpfrontFee"] = "7700.00"
    said = orch("blocks", "buy", "cb-1", "--confirm", "7552.00")
    assert said.status == 2 and "$7,700.00" in said.err
    assert shop.sold == []


def test_a_dry_run_asks_nothing_and_its_command_sends_the_request_it_shows(
    orch: Orch, shop: BlockShop, home: Path
) -> None:
    orch(*FIND)
    heard_before = len(shop.heard)
    said = orch("blocks", "buy", "cb-1", "--dry-run")
    assert said.status == 0 and "nothing was bought" in said.err and len(shop.heard) == heard_before
    command = said.out.splitlines()[-1].replace("(installation id, made at first launch)", "inst-1")
    aws = Path(sys.executable).with_name("aws")
    subprocess.run([sys.executable, aws, *shlex.split(command)[1:]], check=True, capture_output=True, timeout=60)
    known = recall(home / "state", "aws", "cb-1")
    assert known is not None
    assert shop.heard[-1][2] == revealed(of.purchase_request(known, "inst-1").body)


@pytest.mark.parametrize(("typed", "status", "sold"), [("7552.01", 2, 0), ("7552.00", 0, 1)])
def test_on_a_terminal_the_price_is_typed(orch: Orch, shop: BlockShop, typed: str, status: int, sold: int) -> None:
    orch(*FIND)
    main, side = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "orchestrator", "blocks", "buy", "cb-1"],
        stdin=side, stdout=subprocess.PIPE, stderr=side,
    ) as process:  # fmt: skip
        os.close(side)
        shown = b""
        while b"type 7552.00 to buy" not in shown:
            shown += os.read(main, 4096)
        os.write(main, f"{typed}\n".encode())
        assert process.wait(60) == status
    os.close(main)
    assert len(shop.sold) == sold
