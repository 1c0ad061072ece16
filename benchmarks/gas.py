"""Gas of everything that a lease's life costs on chain, beside a bare ERC-20 transfer in one run.

Anvil, through the Python side, in the steady state: every machine and account had such a lease
before, so that no slot is new. Calldata and the transaction's own 21,000 are included and divided
by the leases of the call. `keys`: a node key and a session key sign in place of the wallets.
Prints a table, then one JSON line; its figures are those of leases that wallets sign, closed at
half their cap.
"""

from __future__ import annotations

import argparse
import json

from benchmarks._audited import AUDITS, Audited
from benchmarks._chain import Chain, running_chain
from benchmarks._leases import Leases, Pairs
from benchmarks._modules import Futures, GroupBuys
from benchmarks._parties import DURATION, Market
from cloud_gpu.protocol.adapters.bindings import payment_token
from cloud_gpu.protocol.audit import SEGMENTS_MAX
from cloud_gpu.protocol.calls import ExpireLease, StopLease
from cloud_gpu.protocol.deployment import DeploymentTerms
from cloud_gpu.protocol.identity import KeyRole
from cloud_gpu.protocol.lease import Windows

WINDOWS = Windows(start=900, claim=3_600, retire=864_000)
N = 50
GANG = 8
BATCHES = 10
PEOPLE = 20
KEYS = (
    "erc20_transfer",
    "lease_n1",
    "lease_n10",
    "lease_n50_distinct",
    "lease_n50_5x10",
    "begin",
    "settle",
    "stop",
    "expire",
    "verified_segment",
    "slash",
    "future",
    "group_buy_20",
)
"""Of the JSON line; null: not on this chain."""
TARGETS = {
    "lease_n50_5x10": 45_000,
    "lease_n50_distinct": 60_000,
    "begin": 15_000,
    "verified_segment": 2_000,
    "slash": 150_000,
}
"""Most gas that each may cost. Source: the issue, DESIGN.md 7."""


class Measured:
    """Takes the figures down as they come."""

    def __init__(self) -> None:
        self.figures: dict[str, int] = {}

    def row(self, name: str, gas: int, key: str | None = None) -> None:
        """One line of the table, and a figure of the JSON line where it has a key."""
        target = TARGETS.get(key or "")
        held = "" if target is None else f"{target:>10,}{'':3}{'ok' if gas <= target else 'OVER'}"
        print(f"{name:<52}{gas:>10,}{held}", flush=True)
        if key:
            self.figures[key] = gas


def transfers(told: Measured, chain: Chain) -> None:
    """The yardstick."""
    owner, other = chain.key("holder"), chain.key("other holder")
    for each in (owner, other):
        chain.send(each, payment_token.mint(each.address, 1_000))
    to_holder = chain.send(owner, payment_token.transfer(other.address, 1)).gas
    to_new = chain.send(owner, payment_token.transfer(chain.key("nobody").address, 1)).gas
    told.row("ERC-20 transfer to a holder", to_holder, "erc20_transfer")
    told.row("ERC-20 transfer to a new holder", to_new)


def trading(told: Measured, market: Market, *, own_keys: bool) -> None:
    """Open and close in batches; `own_keys`: node and session keys sign."""
    words = "keys" if own_keys else "wallets"
    providers = [
        market.party(f"provider {n} {words}", KeyRole.NODE, own_key=own_keys) for n in range(N)
    ]
    buyers = [
        market.party(f"buyer {n} {words}", KeyRole.SESSION, own_key=own_keys) for n in range(N)
    ]
    leases = Leases(market)
    distinct: Pairs = [
        (market.machine(provider, 0), buyer)
        for provider, buyer in zip(providers, buyers, strict=True)
    ]
    shared: Pairs = [
        (market.machine(providers[n % 10], 1 + n // 10), buyers[n % 5]) for n in range(N)
    ]
    for n, pairs, name, key in (
        (1, distinct[:1], "n=1", "lease_n1"),
        (10, distinct[:10], "n=10", "lease_n10"),
        (N, distinct, f"n={N} distinct", "lease_n50_distinct"),
        (N, shared, f"n={N}, 5 buyers x 10 providers", "lease_n50_5x10"),
    ):
        life = leases.round(pairs)
        whole = key if not own_keys else None
        told.row(f"open + close, {words}, {name}", life.open + life.close, whole)
        told.row("  open", life.open)
        told.row("  close with a refund", life.close)
        told.row("  open + close at the whole cap", life.open + life.close_full)
        settled = "settle" if n == N and pairs is distinct and not own_keys else None
        told.row("  settle a voucher", life.settle, settled)
    if not own_keys:
        singles(told, market, leases, shared)


def singles(told: Measured, market: Market, leases: Leases, shared: Pairs) -> None:
    """Begin, stop, expire, a gang."""
    chain, (machine, buyer) = market.chain, shared[0]
    farm = market.party("farm", KeyRole.NODE, own_key=False)
    crowd: Pairs = [(market.machine(farm, n), shared[n % 5][1]) for n in range(N)]
    for _ in range(2):  # the first round makes the slots
        opened, _gas = leases.opened(crowd)
        together = leases.begun_together(crowd, opened) // N
        chain.pass_time(DURATION + WINDOWS.claim + 1)
        for lease in opened:
            expired = chain.send(market.matcher, ExpireLease(lease=lease)).gas
    (lease,), _gas = leases.opened([(machine, buyer)])
    alone = leases.begun([(machine, buyer)], [lease])
    chain.pass_time(DURATION // 2)
    stopped = chain.send(buyer.wallet, StopLease(lease=lease)).gas
    told.row(f"begin, one provider's {N} in a call", together, "begin")
    told.row("begin, alone with a Ready", alone)
    told.row("stop", stopped, "stop")
    told.row("expire", expired, "expire")
    machines = [each for each, _ in crowd[:GANG]]
    _leases, gang = leases.gang(machines, buyer)
    told.row(f"open a gang of {GANG}, per lease", gang // GANG)


def modules(told: Measured, market: Market) -> None:
    """A future from its opening to the last margin, and a group buy of 20 people."""
    futures, buys = Futures(market), GroupBuys(market, PEOPLE)
    for _ in range(2):  # the first one makes the slots
        steps, bought = futures.round(), buys.round()
    told.row("future of an hour, from open to settled", sum(steps.values()), "future")
    for name, gas in steps.items():
        told.row(f"  {name}", gas)
    told.row(f"group buy of {PEOPLE} people, all together", sum(bought), "group_buy_20")
    told.row("  per person", sum(bought) // PEOPLE)
    locked, closed = bought
    told.row("  lock a pledge", locked // PEOPLE)
    told.row("  close the campaign, per lease", closed // PEOPLE)


def auditing(told: Measured, chain: Chain) -> None:
    """Verified leases: batches of 100 segments, and a conviction."""
    audited = Audited(chain)
    for _ in range(2):  # the second finds every slot of its machine in use before
        batch = audited.round(BATCHES)
    each = (batch.commit + batch.reveal + batch.finalise) // SEGMENTS_MAX
    name = f"verified segment, {SEGMENTS_MAX} a batch, {BATCHES} batches a draw"
    told.row(name, each, "verified_segment")
    told.row("  commit a batch", batch.commit)
    told.row("  draw a batch", batch.reveal)
    told.row("  end a batch", batch.finalise)
    audited.slashed()  # the first one makes the slot where fines are burnt to
    accused, convicted = audited.slashed()
    told.row("accuse a segment", accused)
    told.row("slash (convict)", convicted, "slash")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.parse_args()
    told = Measured()
    print(f"{'gas':<52}{'':>10}{'target':>10}\n")
    with running_chain(DeploymentTerms(windows=WINDOWS, audits=AUDITS)) as chain:
        transfers(told, chain)
        market = Market(chain)
        trading(told, market, own_keys=False)
        trading(told, market, own_keys=True)
        modules(told, market)
    with running_chain(DeploymentTerms(windows=WINDOWS, audits=AUDITS)) as chain:
        auditing(told, chain)
    print()
    print(json.dumps({key: told.figures.get(key) for key in KEYS}))


if __name__ == "__main__":
    main()
