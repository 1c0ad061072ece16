"""The market's log: what sealing an entry costs beside a bare keccak, and how fast it is replayed.

A journal of bids, one block and one round a hundred, on SQLite in a file. `chain` seals each entry
as the journal does; `keccak` hashes the same octets, nothing else, in turns with it. `read` is the
journal from the disk with every seal checked, `replay` the matchmaker on top, `audit` the published
rounds computed again from themselves, every signature included. CPU time, least of the runs.
Prints a table, then one JSON line.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory

from sha3 import keccak_256  # type: ignore[import-untyped]

from benchmarks._orders import FEE, MATCHER, NOW_S, PRODUCT, RULES, bids
from cloud_gpu.protocol.chain_events import ChainAdvanced, MarketRegistered, ProductRegistered
from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.effects import PublishRound
from cloud_gpu.protocol.events import BidSubmitted
from cloud_gpu.protocol.rounds import PublishedRound, RoundHeader
from cloud_gpu.protocol.units import Instant
from cloud_gpu.protocol.values import ZERO_DIGEST
from market.audit.auditing import Auditor
from market.matchmaker import Matchmaker
from market.receipts import header_signer
from market.rules import MatchmakerEvent, RulesSet
from market.store.database import Database
from market.store.journal import FIRST_HEAD, SqlJournal, next_head

BIDS, BIDS_A_ROUND, TURNS = 4_000, 100, 5
TARGETS = {"chain_us_beside_keccak": 1.0, "replay_s_of_1m_beside_hashes": 1.0}
"""At most; design of the market, 8. Microseconds an entry, seconds."""

Entry = tuple[MatchmakerEvent, Instant]


def entries_of_bids(count: int) -> list[Entry]:
    """A market's first minutes."""
    product = {name: getattr(PRODUCT, name) for name in PRODUCT.__struct_fields__ if name != "id"}
    now = NOW_S * 1000
    found: list[Entry] = [
        (RulesSet(rules=RULES), now),
        (ProductRegistered(product=PRODUCT.id, **product), now),
        (MarketRegistered(market_id=1, account=MATCHER.address, fee=FEE), now),
        (ChainAdvanced(block=1, at=NOW_S), now),
    ]
    for number, order in enumerate(bids(count)):
        if number % BIDS_A_ROUND == 0:
            now += RULES.round_ms
            block = 2 + number // BIDS_A_ROUND
            found.append((ChainAdvanced(block=block, at=now // 1000), now))
        found.append((BidSubmitted(order=order, inbox=number + 1), now))
    return [*found, (ChainAdvanced(block=10**6, at=now // 1000 + 2), now + 2_000)]


def chained(bodies: Sequence[tuple[bytes, Instant]]) -> object:
    """Each sealed by the one before."""
    head = FIRST_HEAD
    for body, now in bodies:
        head = next_head(head, now, body)
    return head


def hashed(octets: Sequence[bytes]) -> object:
    """As many octets, nothing else."""
    found = b""
    for each in octets:
        found = keccak_256(each).digest()
    return found


def handled(entries: Sequence[Entry]) -> list[PublishRound]:
    """What a market makes of its journal; its rounds."""
    market = Matchmaker(RULES)
    return [
        effect
        for event, now in entries
        for effect in market.handle(event, now)
        if isinstance(effect, PublishRound)
    ]


def signed(rounds: Sequence[PublishRound]) -> list[PublishedRound]:
    """As the store publishes them; the journal's heads are left out."""
    before, sign, found = ZERO_DIGEST, header_signer(MATCHER), []
    for each in rounds:
        header = RoundHeader(facts=each.facts, before=before, journal_head=ZERO_DIGEST)
        before = header.id
        found.append(PublishedRound(header=sign(header), body=each.body))
    return found


def audited(rounds: Sequence[PublishedRound]) -> None:
    """Ends the benchmark where an honest market does not pass."""
    auditor = Auditor(MATCHER.address)
    for each in rounds:
        if (found := auditor.check(each)) is not None:
            sys.exit(str(found))


def least(*works: Callable[[], object]) -> list[float]:
    """Seconds of each, in turns."""
    found = [9e9] * len(works)
    for _ in range(TURNS):
        for place, work in enumerate(works):
            began = time.process_time()
            work()
            found[place] = min(found[place], time.process_time() - began)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bids", type=int, default=BIDS)
    entries = entries_of_bids(parser.parse_args().bids)
    bodies = [(to_json(event), now) for event, now in entries]
    octets = [FIRST_HEAD.raw + now.to_bytes(8, "big") + body for body, now in bodies]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        database = stack.enter_context(closing(Database(f"sqlite:///{folder / 'log.sqlite3'}")))
        database.create(RULES.owner)
        journal = SqlJournal(database)
        for event, now in entries:
            journal.append(event, now)
        rounds = signed(handled(entries))
        chain, keccak = least(lambda: chained(bodies), lambda: hashed(octets))
        read, replay = least(
            lambda: list(journal.replay()), lambda: handled(list(journal.replay()))
        )
        (audit,) = least(lambda: audited(rounds))
    count, mean = len(entries), sum(map(len, octets)) / len(octets)
    print(f"{count} entries of {mean:.0f} octets, {len(rounds)} rounds\n")
    print(f"{'':>10}{'us/entry':>10}{'entries/s':>12}")
    for name, took in (
        ("keccak", keccak),
        ("chain", chain),
        ("read", read),
        ("replay", replay),
        ("audit", audit),
    ):
        print(f"{name:>10}{took / count * 1e6:>10.2f}{count / took:>12,.0f}")
    line = {
        "octets": round(mean),
        "keccak_us": round(keccak / count * 1e6, 2),
        "chain_us": round(chain / count * 1e6, 2),
        "chain_us_beside_keccak": round((chain - keccak) / count * 1e6, 2),
        "ratio_to_keccak": round(chain / keccak, 2),
        "read_per_s": round(count / read),
        "replay_per_s": round(count / replay),
        "audit_per_s": round(count / audit),
    }
    print("\ntargets", TARGETS)
    print(json.dumps(line))


if __name__ == "__main__":
    main()
