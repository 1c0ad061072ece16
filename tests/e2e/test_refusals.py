"""What goes wrong is said at once: found, needed, what to do next, and an exit code to act on."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cloud_gpu.cli.exits import ExitCode
from cloud_gpu.protocol.adapters.keystore import (
    DEVNET_SCRYPT_N,
    new_secret,
    write_keystore,
    write_password_file,
)
from tests.e2e.test_devnet import of_person
from tests.support.person import COMMAND, Person

pytestmark = pytest.mark.timeout(180)

RUN = ("run", "--yes", "--json", "--gpu", "A100", "--count", "2", "--duration", "10m")


def test_a_bid_that_no_ask_satisfies_names_the_limit_and_the_nearest_change(buyer: Person) -> None:
    refused = buyer.runs("quote", *RUN[2:], "--max-price", "0.50")
    assert refused.code == ExitCode.NO_MATCH
    error = refused.json
    assert error["reason"] == "no-match"
    assert error["found"] == "--max-price: asks from 0.745 tokens per GPU-hour"
    assert error["needed"] == "at most 0.50"
    assert "--max-price 0.745" in error["next"]


def test_a_class_that_nobody_offers_is_answered_with_what_there_is(buyer: Person) -> None:
    refused = buyer.runs(*RUN[:3], "--gpu", "MI300X", "--", "true")
    assert refused.code == ExitCode.RUN_FAILED
    error = refused.json
    assert error["code"] == ExitCode.NO_MATCH
    assert error["needed"] == "1x MI300X"
    assert "2x A100-SXM4-40GB" in error["found"]


def test_a_bid_below_every_ask_expires_and_locks_nothing(buyer: Person) -> None:
    before = buyer.runs("wallet", "show", "--json").json["vault"]
    refused = buyer.runs(*RUN, "--max-price", "0.50", "--start-by", "4s", "--", "true")
    assert refused.code == ExitCode.RUN_FAILED
    assert refused.json["code"] == ExitCode.NO_MATCH
    assert buyer.runs("wallet", "show", "--json").json["vault"] == before


def test_a_wait_that_is_over_takes_the_bid_back_and_exits_9(buyer: Person) -> None:
    before = buyer.runs("wallet", "show", "--json").json["vault"]
    began = time.monotonic()
    low = ("--max-price", "0.50", "--start-by", "10m", "--timeout", "4s")
    waited = buyer.runs(*RUN, *low, "--", "true")
    assert waited.code == ExitCode.RUN_FAILED
    assert (waited.json["code"], waited.json["reason"]) == (ExitCode.STILL_WAITING, "still-waiting")
    assert "the bid is taken back" in waited.err
    opened = buyer.runs("up", *RUN[1:], *low, "--name", "late")
    assert opened.code == ExitCode.STILL_WAITING, opened.err
    assert opened.json["reason"] == "still-waiting"
    assert "the bid is taken back" in opened.err
    assert buyer.runs("show", "late").code == ExitCode.NO_SUCH_THING
    assert time.monotonic() - began < 60, "not the ten minutes that the bids stood"
    assert buyer.runs("wallet", "show", "--json").json["vault"] == before


@pytest.fixture
def silent_market() -> Iterator[str]:
    """A market that takes calls and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_market_that_says_nothing_is_waited_for_as_long_as_one_is_told(
    buyer: Person, silent_market: str
) -> None:
    lost = Person(buyer.home, {"CLOUD_GPU_MARKET": silent_market})
    waited = lost.runs("ls", "--json", "--timeout", "2s")
    assert waited.code == ExitCode.STILL_WAITING
    assert "2 s" in waited.json["found"]


@pytest.fixture
def stranger(buyer: Person, tmp_path: Path) -> Person:
    """Somebody on the same devnet whose wallet is new."""
    keystore, password = tmp_path / "wallet.json", tmp_path / "wallet.password"
    write_keystore(keystore, new_secret(), "secret", work=DEVNET_SCRYPT_N)
    write_password_file(password, "secret")
    files = {"CLOUD_GPU_KEYSTORE": str(keystore), "CLOUD_GPU_PASSWORD_FILE": str(password)}
    return Person(buyer.home, files)


def test_an_empty_vault_is_said_before_anything_is_signed(stranger: Person) -> None:
    refused = stranger.runs(*RUN, "--", "true")
    assert refused.code == ExitCode.RUN_FAILED
    error = refused.json
    assert error["code"] == ExitCode.FUNDS
    assert error["reason"] == "funds-too-small"
    assert error["found"].startswith("0.00 tokens")
    assert "cloud-gpu wallet fund" in error["next"]


def test_a_market_that_is_down_is_said_and_doctor_points_at_it(buyer: Person) -> None:
    lost = Person(buyer.home, {"CLOUD_GPU_MARKET": "http://127.0.0.1:9"})
    refused = lost.runs("ls", "--json")
    assert refused.code == ExitCode.UNAVAILABLE
    assert refused.json["reason"] == "market-unavailable"
    assert "http://127.0.0.1:9" in refused.json["found"]
    looked = lost.runs("doctor", "--json")
    assert looked.code == ExitCode.UNAVAILABLE
    assert [c["check"] for c in looked.json["checks"] if not c["ok"]] == ["market"]


def signed_bid(buyer: Person) -> dict[str, Any]:
    """An order as it would be handed in."""
    made = buyer.runs("bid", "place", *RUN[1:], "--dry-run")
    assert made.code == 0, made.err
    order: dict[str, Any] = made.json["orders"][0]
    return order


def test_a_bid_with_a_wrong_signature_is_refused_and_says_whose_was_needed(
    buyer: Person, tmp_path: Path
) -> None:
    order = signed_bid(buyer)
    account = order["bid"]["payload"]["buyer"]
    order["bid"]["payload"]["max_price_per_hour"] += 1_000  # after it was signed
    body = tmp_path / "bid.json"
    body.write_text(json.dumps(order))
    refused = buyer.runs("bid", "place", "--body", str(body), "--yes", "--json")
    assert refused.code == ExitCode.REJECTED
    error = refused.json
    assert error["reason"] in ("key-not-authorised", "bad-signature")
    assert account in error["needed"]
    assert error["next"]


def test_junk_posted_to_a_market_is_a_problem_document_that_names_the_field(buyer: Person) -> None:
    market = buyer.runs("devnet", "status", "--json").json["market"]
    order = signed_bid(buyer)
    order["bid"]["payload"]["count"] = 0
    with httpx.Client(base_url=market, trust_env=False) as client:
        answer = client.post("/v1/bids", json=order)
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"].startswith("application/problem+json")
    assert "count" in answer.text


def test_without_settings_the_first_command_says_how_to_get_some(newcomer: Person) -> None:
    lost = newcomer.runs("ls")
    assert lost.code == ExitCode.SETTINGS
    assert "cloud-gpu devnet up" in lost.err


def test_spending_is_never_assumed(buyer: Person) -> None:
    refused = buyer.runs("run", "--gpu", "A100", "--", "true")
    assert refused.code == ExitCode.USAGE
    assert "--yes" in refused.err


def test_a_wallet_that_others_may_read_is_refused(stranger: Person) -> None:
    keystore = Path(stranger.environ["CLOUD_GPU_KEYSTORE"])
    keystore.chmod(0o644)
    refused = stranger.runs("wallet", "show")
    assert refused.code == ExitCode.SETTINGS
    assert f"chmod 600 {keystore}" in refused.err


@pytest.mark.parametrize("folder", ["config", "share"])
def test_a_folder_that_cannot_be_written_is_named_and_nothing_is_left(
    newcomer: Person, folder: str
) -> None:
    (newcomer.home / folder).write_text("a file in the way")
    refused = newcomer.runs("devnet", "up", "--nodes", "1", "--json")
    assert refused.code in (ExitCode.SETTINGS, ExitCode.UNAVAILABLE)
    assert str(newcomer.home / folder) in refused.json["found"]
    assert newcomer.runs("devnet", "status").code == ExitCode.NO_SUCH_THING
    assert of_person(newcomer) == []


def test_a_reader_that_has_read_enough_is_no_error(buyer: Person) -> None:
    line = f"{COMMAND} ls --json | true; echo ${{PIPESTATUS[0]}}"
    done = buyer.runs_program(["bash", "-c", line])
    assert done.out == "0\n"
    assert "Traceback" not in done.err
    assert "BrokenPipe" not in done.err
