"""Futures and group buys from the first signature to the last unit paid, and what each costs."""

from __future__ import annotations

from benchmarks._chain import Receipt
from benchmarks._parties import CAP, DURATION, PRICE, Machine, Market, Party
from cloud_gpu.protocol.adapters.bindings import futures, group_buy, lease_book
from cloud_gpu.protocol.adapters.evm_bound import Call
from cloud_gpu.protocol.adapters.evm_calls import struct
from cloud_gpu.protocol.calls import PostReady
from cloud_gpu.protocol.futures import FUTURES, FutureOrder
from cloud_gpu.protocol.group_buy import GROUP_BUY, Pledge
from cloud_gpu.protocol.identity import KeyRole, LocalKey
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.signing import Domain, sign
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Digest

_HOUR = 3_600


class Futures:
    """One long and one short, and the short's machine."""

    def __init__(self, market: Market) -> None:
        self.market, self.chain = market, market.chain
        self._long = market.party("long", KeyRole.SESSION, own_key=False)
        self._short = market.party("short", KeyRole.NODE, own_key=False)
        self._machine = market.machine(self._short, 0)
        self._nonce = 0

    def round(self) -> dict[str, int]:
        """The gas of every step of a contract that is delivered and ends in peace."""
        opens_at = (self.chain.time() + 8 * _HOUR) // _HOUR * _HOUR
        series = futures.Series(self.market.product, opens_at, _HOUR)
        steps = {"open": self._sent(self.market.matcher, self._opening(series))}
        number = self.chain.ask(futures.contract_count())
        indexes = (self._machine.index,)
        steps["fund"] = self._sent(self._long.wallet, futures.fund(number))
        steps["nominate"] = self._sent(self._short.wallet, futures.nominate(number, indexes))
        self.chain.pass_time(opens_at - self.chain.time() + 1)
        steps["deliver"] = self._sent(self.market.matcher, futures.deliver(number, indexes))
        provider = self._short.wallet.address
        seq = self.chain.ask(lease_book.machine_of(provider, indexes[0])).seq
        lease = LeaseKey(provider=provider, index=indexes[0], seq=seq)
        start = self.market.beginning(self._machine, self._long, lease)
        assert start.ready is not None, "a Ready is signed for every beginning"
        steps["post Ready"] = self.chain.send(self._short.wallet, PostReady(ready=start.ready)).gas
        steps["begin"] = self.chain.send(self._short.wallet, start).gas
        self.chain.pass_time(_HOUR + 1)
        closing = self.market.closing(self._machine, self._long, lease, CAP)
        steps["close"] = self.chain.send(self.market.matcher, self.market.closings([closing])).gas
        settling = futures.settle_unit(provider, indexes[0], seq)
        steps["settle the margins"] = self._sent(self.market.matcher, settling)
        return steps

    def _opening(self, series: futures.Series) -> Call[None]:
        rows, signatures = [], []
        deployment = self.chain.deployment
        domain = Domain(
            name=FUTURES, chain_id=deployment.chain_id, verifying_contract=deployment.futures
        )
        for trader, is_buy in ((self._long, True), (self._short, False)):
            order = FutureOrder(
                trader=trader.wallet.address,
                is_buy=is_buy,
                product=series.product,
                window_start=series.window_start,
                window_seconds=series.window_seconds,
                units=1,
                limit_price_per_hour=PRICE,
                start_by=self.chain.time() + _HOUR,
                nonce=self._nonce,
                matcher=self.market.matcher.address,
            )
            rows.append(futures.FutureOrder(*struct(order)))
            signatures.append(sign(order, domain, trader.wallet).signature.raw)
        self._nonce += 1
        pair = futures.FuturePair(rows[0], rows[1], 1, signatures[0], signatures[1])
        return futures.open_futures(series, PRICE.value, (pair,))

    def _sent(self, key: LocalKey, call: Call[None]) -> int:
        return self.chain.send(key, call).gas


class GroupBuys:
    """So many people, each with one slice, and as many machines of ten providers."""

    def __init__(self, market: Market, people: int) -> None:
        self.market, self.chain = market, market.chain
        self._people = [
            market.party(f"person {n}", KeyRole.SESSION, own_key=False) for n in range(people)
        ]
        sellers = [
            market.party(f"group seller {n}", KeyRole.NODE, own_key=False) for n in range(10)
        ]
        self._machines: list[Machine] = [
            market.machine(sellers[n % 10], n // 10) for n in range(people)
        ]
        self._nonce = 0

    def round(self) -> tuple[int, int]:
        """The gas of all pledges, and of the closing that opens everybody's lease."""
        now = self.chain.time()
        campaign = group_buy.Campaign(
            organiser=self.market.matcher.address,
            product=self.market.product,
            price_per_hour=PRICE.value,
            duration=DURATION,
            goal=len(self._people),
            window_start=now,
            deadline=now + 24 * _HOUR,
            market_id=self.market.market_id,
            providers_hash=bytes(32),
        )
        locked = sum(self._pledged(campaign, person).gas for person in self._people)
        self._nonce += 1
        entries = []
        for machine in self._machines:
            ask = self.market.ask(machine, matcher=self.chain.deployment.group_buy)
            row = group_buy.Ask(*struct(ask.payload))
            entries.append(group_buy.PledgedAsk(row, ask.signature.raw, 0))
        closing = group_buy.close_campaign(campaign, (), tuple(entries))
        closed = self.chain.send(self.market.matcher, closing).gas
        self.chain.pass_time(self.chain.deployment.windows.start + 1)
        for machine in self._machines:
            provider = machine.provider.wallet.address
            seq = self.chain.ask(lease_book.machine_of(provider, machine.index)).seq
            over = lease_book.refund_unstarted(provider, machine.index, seq)
            self.chain.send(self.market.matcher, over)
        return locked, closed

    def _pledged(self, campaign: group_buy.Campaign, person: Party) -> Receipt:
        deployment = self.chain.deployment
        domain = Domain(
            name=GROUP_BUY, chain_id=deployment.chain_id, verifying_contract=deployment.group_buy
        )
        pledge = Pledge(
            buyer=person.wallet.address,
            campaign_id=Digest(self.chain.ask(group_buy.id_of(campaign))),
            max_amount=TokenAmount(CAP),
            slices=1,
            nonce=self._nonce,
        )
        signed = sign(pledge, domain, person.wallet)
        row = group_buy.Pledge(*struct(pledge))
        call = group_buy.lock_pledge(campaign, row, signed.signature.raw)
        return self.chain.send(self.market.matcher, call)
