"""Moves of futures: from a call of good and bad pairs to the last margin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from msgspec.structs import replace

from benchmarks._chain import Receipt
from benchmarks._parties import Party
from benchmarks._season import Ahead, Broken, Season
from benchmarks._season_moves import Move
from cloud_gpu.protocol import limits
from cloud_gpu.protocol.adapters import evm_abi
from cloud_gpu.protocol.adapters.bindings import futures
from cloud_gpu.protocol.adapters.evm_bound import Call
from cloud_gpu.protocol.adapters.evm_calls import struct
from cloud_gpu.protocol.futures import Assignment, FutureOrder
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.signing import sign
from cloud_gpu.protocol.units import Price, TokenAmount
from cloud_gpu.protocol.values import Address

_HOUR = 3_600
_LENGTHS = (_HOUR, 4 * _HOUR, 24 * _HOUR, 168 * _HOUR)
_SELDOM = (12, 4, 2, 1)
_UNITS_MAX = 3
_UNIT_ENDS = ("running", "held", "broken by the long", "broken by the short")


class Fault(StrEnum):
    """What makes a pair one that must be left out."""

    PRICE = "outside the seller's limit"
    SIGNATURE = "signed by somebody else"
    SAME = "one trader on both sides"
    SERIES = "orders of two windows"
    MATCHER = "another matcher's"
    SIDES = "two buys"
    UNITS = "more units than ordered"
    LATE = "past its time"


def open_futures(s: Season) -> None:
    """One call of up to three pairs, some of them bad: those open nothing, the others go on."""
    length = s.dice.choices(_LENGTHS, _SELDOM)[0]
    lead = s.chain.ask(futures.rules()).lead
    first = s.chain.time() + lead + s.dice.randint(60, 4 * _HOUR)
    series = futures.Series(s.market.product, -(-first // length) * length, length)
    price = limits.PRICE_TICK * s.dice.randint(1_000, 9_999)
    faults = [
        s.dice.choice(tuple(Fault)) if s.dice.random() < 0.3 else None
        for _ in range(s.dice.randint(1, 3))
    ]
    tried = [each for fault in faults for each in _pairs(s, series, price, fault)]
    pairs = tuple(pair for pair, _ in tried)
    receipt = s.attempt(s.market.matcher, futures.open_futures(series, price, pairs))
    if receipt is not None:
        _take_down(s, series, price, tried, receipt)


def _pairs(
    s: Season, series: futures.Series, price: int, fault: Fault | None
) -> list[tuple[futures.FuturePair, Fault | None]]:
    """Of two orders; some of the good ones open two contracts, and then no more."""
    pair = _pair(s, series, price, fault)
    if fault is not None or pair.units == 1 or s.dice.random() < 0.5:
        return [(pair, fault)]
    first = s.dice.randint(1, pair.units - 1)
    parts = first, pair.units - first, pair.units
    return [(replace(pair, units=units), None) for units in parts]


def _pair(s: Season, series: futures.Series, price: int, fault: Fault | None) -> futures.FuturePair:
    long, short = s.dice.choice(s.buyers), s.dice.choice(s.providers)
    if fault is Fault.SAME:
        short = long
    units = s.dice.randint(1, _UNITS_MAX)
    buy = _order(s, series, long, is_buy=True, units=units, price=price)
    sell = _order(s, series, short, is_buy=False, units=units, price=price)
    match fault:
        case Fault.PRICE:
            sell = replace(sell, limit_price_per_hour=Price(price + limits.PRICE_TICK))
        case Fault.SERIES:
            sell = replace(sell, window_start=sell.window_start + sell.window_seconds)
        case Fault.MATCHER:
            buy = replace(buy, matcher=short.wallet.address)
        case Fault.SIDES:
            sell = replace(sell, is_buy=True)
        case Fault.LATE:
            buy = replace(buy, start_by=s.chain.time() - 1)
        case _:
            pass
    domain = s.chain.deployment.futures_domain
    signer = short if fault is Fault.SIGNATURE else long
    return futures.FuturePair(
        futures.FutureOrder(*struct(buy)),
        futures.FutureOrder(*struct(sell)),
        units + 1 if fault is Fault.UNITS else units,
        sign(buy, domain, signer.wallet).signature.raw,
        sign(sell, domain, short.wallet).signature.raw,
    )


def _order(
    s: Season, series: futures.Series, trader: Party, *, is_buy: bool, units: int, price: int
) -> FutureOrder:
    return FutureOrder(
        trader=trader.wallet.address,
        is_buy=is_buy,
        product=series.product,
        window_start=series.window_start,
        window_seconds=series.window_seconds,
        units=units,
        limit_price_per_hour=Price(price),
        start_by=s.chain.time() + _HOUR,
        nonce=s.nonce(trader),
        matcher=s.market.matcher.address,
    )


def _take_down(
    s: Season,
    series: futures.Series,
    price: int,
    pairs: list[tuple[futures.FuturePair, Fault | None]],
    receipt: Receipt,
) -> None:
    events = _events(s, receipt)
    skipped = {found["index"] for name, found in events if name == "PairSkipped"}
    opened = [found for name, found in events if name == "FutureOpened"]
    taken = [pair for i, (pair, _) in enumerate(pairs) if i not in skipped]
    for i, (_, fault) in enumerate(pairs):
        if fault is not None and i not in skipped:
            raise Broken(f"a pair was not left out: {fault}")
    units: Counter[tuple[Address, int]] = Counter()
    for pair in taken:
        for order in (pair.buy, pair.sell):
            units[order.trader, order.nonce] += pair.units
            if units[order.trader, order.nonce] > order.units:
                raise Broken("an order opened more than it says")
    s.fouls += sum(fault is not None for _, fault in pairs)
    s.facts["futures"] += len(opened)
    for found, pair in zip(opened, taken, strict=True):
        long, short = s.party(found["long"]), s.party(found["short"])
        s.ahead.append(Ahead(found["contractId"], long, short, series, price, pair))


def _events(s: Season, receipt: Receipt) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for log in receipt.logs:
        if log["address"].lower() == str(s.chain.deployment.futures).lower():
            topics = [bytes.fromhex(topic[2:]) for topic in log["topics"]]
            named = evm_abi.futures().log(topics, bytes.fromhex(log["data"][2:]))
            assert named is not None, "Futures emits what its ABI knows"
            found.append(named)
    return found


# Before the window.


def handing_over(
    s: Season, ahead: Ahead, joiner: Party, *, is_buy: bool, signer: Party
) -> Call[None]:
    """A side of a contract to `joiner`, who alone may sign it."""
    said = Assignment(
        contract_id=ahead.number,
        is_buy=is_buy,
        leaver=(ahead.long if is_buy else ahead.short).wallet.address,
        joiner=joiner.wallet.address,
        leaver_pays=TokenAmount(s.dice.choice((0, 0, 123_457))),
        joiner_pays=TokenAmount(s.dice.choice((0, 0, 765_431))),
        expiry=s.chain.time() + _HOUR,
        nonce=s.nonce(joiner),
    )
    signature = sign(said, s.chain.deployment.futures_domain, signer.wallet).signature
    return futures.assign(futures.Assignment(*struct(said)), signature.raw)


def assign(s: Season) -> None:
    """A long or a short leaves its contract to another."""
    if not s.ahead:
        return
    ahead, is_buy = s.dice.choice(s.ahead), s.dice.random() < 0.5
    leaver = ahead.long if is_buy else ahead.short
    joiner = s.dice.choice([p for p in (s.buyers if is_buy else s.providers) if p is not leaver])
    call = handing_over(s, ahead, joiner, is_buy=is_buy, signer=joiner)
    if s.attempt(leaver.wallet, call):
        s.facts["assigned"] += 1
        if is_buy:
            ahead.long = joiner
        else:
            ahead.short = joiner


def fund(s: Season) -> None:
    """A long locks the price."""
    if s.ahead:
        _fund(s, s.dice.choice(s.ahead))


def _fund(s: Season, ahead: Ahead) -> None:
    ahead.funded |= s.attempt(ahead.long.wallet, futures.fund(ahead.number)) is not None


def nominate(s: Season) -> None:
    """A short names machines, maybe fewer than it sold, maybe busy ones, maybe again."""
    if s.ahead:
        _nominate(s, s.dice.choice(s.ahead))


def _nominate(s: Season, ahead: Ahead) -> None:
    own = [machine.index for machine in s.machines_of(ahead.short)]
    indexes = tuple(s.dice.sample(own, s.dice.randint(1, min(len(own), ahead.pair.units))))
    if s.attempt(ahead.short.wallet, futures.nominate(ahead.number, indexes)):
        ahead.machines = indexes


def fund_and_nominate(s: Season) -> None:
    """Both sides do their part, so that contracts come to delivery."""
    lead, now = s.chain.ask(futures.rules()).lead_short, s.chain.time()
    idle = [each for each in s.ahead if not each.funded and each.series.window_start - lead > now]
    if idle:
        ahead = s.dice.choice(idle)
        _fund(s, ahead)
        _nominate(s, ahead)


# The window, and what follows.


def deliver(s: Season) -> None:
    """Anybody, when the window has begun."""
    closed = s.chain.time() - s.chain.deployment.windows.start
    ready = [
        ahead
        for ahead in s.ahead
        if ahead.funded and ahead.machines and ahead.series.window_start > closed
    ]
    if not ready:
        end_undelivered(s)
        return
    ahead = min(ready, key=lambda each: each.series.window_start)
    s.travel(ahead.series.window_start)
    if not s.attempt(s.stranger().wallet, futures.deliver(ahead.number, ahead.machines)):
        return
    s.ahead.remove(ahead)
    s.facts["futures delivered"] += 1
    provider = ahead.short.wallet.address
    for machine in s.machines_of(ahead.short):
        if machine.index not in ahead.machines:
            continue
        seq = s.machine(machine).seq
        unit = s.chain.ask(futures.unit_of(provider, machine.index, seq))
        if unit.contract_id == ahead.number:
            s.units.append(LeaseKey(provider=provider, index=machine.index, seq=seq))
            s.opened(machine, ahead.long, seq, verified=False)


def end_undelivered(s: Season) -> None:
    """Anybody, where a side did not do its part, or nobody delivered."""
    if s.ahead:
        ahead = min(s.ahead, key=lambda each: each.series.window_start)
        end = _end(ahead)
        if s.attempt(s.stranger().wallet, end(ahead.number)):
            s.ahead.remove(ahead)
            s.facts["futures lapsed" if end is futures.lapse else "futures defaulted"] += 1


def _end(ahead: Ahead) -> Callable[[int], Call[None]]:
    return futures.lapse if ahead.funded and ahead.machines else futures.settle_default


def settle_unit(s: Season) -> None:
    """Anybody, after the lease."""
    if s.units:
        key = s.dice.choice(s.units)
        end = s.chain.ask(futures.unit_of(key.provider, key.index, key.seq)).end
        call = futures.settle_unit(key.provider, key.index, key.seq)
        if s.attempt(s.stranger().wallet, call):
            s.units.remove(key)
            s.facts[f"units {_UNIT_ENDS[end]}"] += 1


FUTURES_MOVES: tuple[tuple[Move, int], ...] = (
    (open_futures, 6),
    (assign, 3),
    (fund, 2),
    (nominate, 2),
    (fund_and_nominate, 9),
    (deliver, 9),
    (end_undelivered, 6),
    (settle_unit, 6),
)


def end_futures(s: Season) -> None:
    """Every contract and every unit, past all deadlines."""
    anybody, start = s.stranger().wallet, s.chain.deployment.windows.start
    last = max((ahead.series.window_start for ahead in s.ahead), default=0)
    s.chain.pass_time(max(0, last + start + 1 - s.chain.time()))
    for ahead in s.ahead:
        s.must(anybody, _end(ahead)(ahead.number))
    for key in s.units:
        s.must(anybody, futures.settle_unit(key.provider, key.index, key.seq))
