"""Audits from the command line: of an API, a file, a folder; and proofs that travel as files."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, cast

import pytest

from cloud_gpu.protocol.adapters.command_line import run_command_line
from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.effects import Transact
from cloud_gpu.protocol.merkle import leads_to
from cloud_gpu.protocol.rounds import PublishedRound, Sequenced, SignedHeader
from market.adapters.rounds_source import read_rounds
from market.api.errors import PROBLEM_TYPE
from market.audit.auditing import Audited
from market.cli.app import app
from market.cli.outside import Outside
from market.receipts import header_signer
from market.store.database import Database
from market.store.journal import SqlJournal
from market.store.views import SqlBook
from tests.support.market_api import Api
from tests.support.published import effects_of, journal_of, published, receipt_of, resealed
from tests.unit.market.builders import (
    MARKET_KEY,
    Desk,
    advert,
    joined,
    order,
    provider,
)
from tests.unit.market.test_proofs import CHEAP, HIGH, LOW, id_of, swapped

MARKET = str(MARKET_KEY.address)


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.mine(*provider("ada"), *provider("eve", 2), *joined("bob", 100), *joined("dan", 100))
    desk.hear(CHEAP, advert("eve", at="1.40"))
    desk.submit(HIGH, LOW)
    desk.end_round()
    return desk


@pytest.fixture
def rounds(desk: Desk) -> list[PublishedRound]:
    return published(journal_of(desk))


def lines_of(rounds: list[PublishedRound]) -> bytes:
    return b"".join(to_json(each) + b"\n" for each in rounds)


def run(*arguments: object) -> int:
    """One command line; only the source of rounds is real, nothing else is asked."""
    outside = cast(Any, Outside)(
        load=None, serve=None, serve_api=None, replay=None, rounds=read_rounds, book=None
    )
    return run_command_line(app, "cloud-gpu-market", outside, [str(each) for each in arguments])


@pytest.fixture
def served(rounds: list[PublishedRound]) -> Iterator[str]:
    """The URL of a market that publishes these rounds."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            number = int(self.path.rpartition("/")[2])
            is_there = number <= len(rounds)
            self.send_response(200 if is_there else 404)
            self.end_headers()
            self.wfile.write(to_json(rounds[number - 1]) if is_there else b"{}")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


def test_a_market_is_audited_over_http_and_the_copy_offline(
    served: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    kept = tmp_path / "rounds.jsonl"
    assert run("replay", "--verify", served, "--keep", kept, "--json") == 0
    first = capfdbinary.readouterr().out
    assert from_json(first, Audited).matches == 2
    folder = tmp_path / "folder"
    folder.mkdir()
    for number, line in enumerate(kept.read_bytes().splitlines()):
        (folder / f"{number:06}.json").write_bytes(line)
    for source in (kept, folder):
        assert run("replay", "--verify", source, "--market", MARKET, "--json") == 0
        assert capfdbinary.readouterr().out == first
    assert run("replay", "--verify", kept) == 0
    assert b"what was published follows from it" in capfdbinary.readouterr().out


def test_the_first_difference_is_named_and_proved_and_the_proof_stands_alone(
    rounds: list[PublishedRound], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source, proof = tmp_path / "rounds.jsonl", tmp_path / "proof.json"
    source.write_bytes(lines_of(resealed(rounds, lambda _, body: swapped(body))))
    assert run("replay", "--verify", source) == 1
    assert capfd.readouterr().err.startswith("round 1, fills 0x")
    assert run("prove", source, "--round", 1, "--bid", id_of(HIGH), "--out", proof) == 0
    assert "fitted it better" in capfd.readouterr().err
    source.unlink()
    assert run("check-proof", proof, "--market", MARKET) == 0
    assert "fitted it better" in capfd.readouterr().out
    assert run("check-proof", proof, "--market", "0x" + 40 * "1") == 1
    assert "nothing is proved" in capfd.readouterr().err
    proof.write_text(proof.read_text().replace("envy", "skipped").replace('"skipped"', '"limit"'))
    assert run("check-proof", proof, "--market", MARKET) == 1


def test_receipts_and_headers_that_were_kept_are_held_against_the_rounds(
    rounds: list[PublishedRound], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source, receipt, header = (tmp_path / name for name in ("rounds", "receipt", "header"))
    source.write_bytes(lines_of(rounds))
    receipt.write_bytes(to_json([receipt_of(id_of(HIGH), 1)]))
    header.write_bytes(to_json(rounds[-1].header))
    kept = ("--receipt", receipt, "--header", header)
    assert run("replay", "--verify", source, *kept) == 0
    assert "1 found" in capfd.readouterr().out
    receipt.write_bytes(to_json(receipt_of(id_of(order("dan", nonce=9)), 1)))
    assert run("replay", "--verify", source, *kept) == 1
    assert "arrivals 1.order" in capfd.readouterr().err
    assert run("prove", source, "--receipt", receipt) == 0
    assert "came out at 1" in capfd.readouterr().err
    source.write_bytes(lines_of(resealed(rounds, facts={"owners_min": 5})))
    assert run("replay", "--verify", source, "--header", header) == 1
    assert run("prove", source, "--header", header) == 0
    assert "two histories" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("replay", "--verify", "nowhere"), 3, "is neither a URL"),
        (("replay", "--verify", "http://127.0.0.1:9"), 8, "did not give round 1"),
        (("replay", "--verify", "{empty}"), 1, "nothing was published"),
        (("replay", "--verify", "{junk}"), 1, "round 1: not a published round"),
        (("replay", "--verify", "{empty}", "--market", "ada"), 3, "--market: Address is written"),
        (("replay", "--verify", "{empty}", "--receipt", "{none}"), 3, "cannot be read"),
        (("replay", "--keep", "{none}"), 3, "belong to --verify"),
        (("prove", "{empty}"), 3, "what is it about"),
        (("prove", "{empty}", "--bid", "0x1"), 1, "there is no round 1"),
        (("check-proof", "{junk}", "--market", MARKET), 3, "FILE: "),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    arguments: tuple[str, ...],
    code: int,
    said: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "junk").write_text("junk\n")
    places = {name: tmp_path / name for name in ("empty", "junk", "none")}
    assert run(*(each.format(**places) for each in arguments)) == code
    assert said in capfd.readouterr().err


async def test_the_api_serves_headers_and_rounds(api: Api, desk: Desk, database: Database) -> None:
    journal, written = journal_of(desk), SqlJournal(database)
    for event, now in journal:
        written.append(event, now)
    rows = [each for each in effects_of(journal) if not isinstance(each, Transact)]
    SqlBook(database, header_signer(MARKET_KEY)).write(rows)
    answer = await api.client.get("/v1/rounds")
    (header,) = from_json(answer.content, list[SignedHeader])
    answer = await api.client.get("/v1/rounds/1")
    assert from_json(answer.content, PublishedRound) == published(journal)[0]
    assert header == published(journal)[0].header
    assert (await api.client.get("/v1/rounds?after=1")).content == b"[]"
    missing = await api.client.get("/v1/rounds/2")
    assert (missing.status_code, missing.headers["content-type"]) == (404, PROBLEM_TYPE)
    assert (await api.client.get("/v1/rounds/0")).status_code == 400
    answer = await api.client.get("/v1/arrivals/2")
    second = from_json(answer.content, Sequenced)
    assert (second.header, second.arrival.order) == (header, id_of(LOW))
    root = header.body.facts.roots.arrivals
    assert leads_to(root, to_json(second.arrival), second.path)
    assert (await api.client.get("/v1/arrivals/3")).status_code == 404
