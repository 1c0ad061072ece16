"""Leases of several pairs at once, from opening to close, and the gas of every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks._parties import CAP, DURATION, Machine, Market, Party
from cloud_gpu.protocol.adapters.bindings import lease_book
from cloud_gpu.protocol.adapters.evm_calls import struct
from cloud_gpu.protocol.adapters.evm_packing import compact, packed_starts
from cloud_gpu.protocol.calls import Closing, SettleBatch
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.orders import Bid
from cloud_gpu.protocol.signing import Signed

Pairs = Sequence[tuple[Machine, Party]]


@dataclass(frozen=True)
class Life:
    """Gas per lease of each step."""

    open: int
    close: int
    close_full: int
    settle: int


class Leases:
    """Leases of several pairs, together in each call."""

    def __init__(self, market: Market) -> None:
        self.market, self.chain = market, market.chain
        self._nonces: dict[Party, int] = {}

    def opened(self, pairs: Pairs) -> tuple[list[LeaseKey], int]:
        """The leases, and the gas of each."""
        orders = [(self.market.ask(machine), self._bid(buyer)) for machine, buyer in pairs]
        together = sorted(orders, key=lambda pair: pair[1].payload.buyer)  # as the market does
        gas = self.chain.send(self.market.matcher, self.market.opening(together)).gas
        asks = [ask.payload for ask, _ in orders]
        return [LeaseKey(provider=a.provider, index=a.index, seq=a.seq) for a in asks], gas

    def gang(self, machines: Sequence[Machine], buyer: Party) -> tuple[list[LeaseKey], int]:
        """One bid over several machines."""
        asks = [self.market.ask(machine) for machine in machines]
        bid = self._bid(buyer, count=len(machines))
        call = lease_book.open_gang(
            self.market.product,
            bid.payload.max_price_per_hour.value,
            self.market.market_id,
            lease_book.Bid(*struct(bid.payload)),
            bid.signature.raw,
            tuple(lease_book.Ask(*struct(ask.payload)) for ask in asks),
            tuple(ask.signature.raw for ask in asks),
        )
        gas = self.chain.send(self.market.matcher, call).gas
        bodies = [ask.payload for ask in asks]
        return [LeaseKey(provider=a.provider, index=a.index, seq=a.seq) for a in bodies], gas

    def _bid(self, buyer: Party, count: int = 1) -> Signed[Bid]:
        nonce = self._nonces.get(buyer, 0)
        self._nonces[buyer] = nonce + 1
        return self.market.bid(buyer, nonce, count=count)

    def begun_together(self, pairs: Pairs, leases: Sequence[LeaseKey]) -> int:
        """Leases of one provider in one call of its own; the gas of all."""
        provider = pairs[0][0].provider
        accepts = [
            self.market.accept(buyer, lease)
            for (_, buyer), lease in zip(pairs, leases, strict=True)
        ]
        call = lease_book.begin_packed(provider.wallet.address, packed_starts(accepts))
        return self.chain.send(provider.daily, call).gas

    def begun(self, pairs: Pairs, leases: Sequence[LeaseKey]) -> int:
        """The gas of each, posted one by one."""
        used = 0
        for (machine, buyer), lease in zip(pairs, leases, strict=True):
            call = self.market.beginning(machine, buyer, lease)
            used += self.chain.send(machine.provider.daily, call).gas
        return used

    def round(self, pairs: Pairs) -> Life:
        """A life from opening to close, twice: the first makes all slots, and ends at the cap."""
        full = 0
        for amount in (CAP, CAP // 2):
            leases, opening = self.opened(pairs)
            self.begun(pairs, leases)
            self.chain.pass_time(DURATION // 4)
            settling = self.chain.send(self.market.matcher, self._vouchers(pairs, leases)).gas
            self.chain.pass_time(DURATION)
            closings = [
                self.market.closing(machine, buyer, lease, amount)
                for (machine, buyer), lease in zip(pairs, leases, strict=True)
            ]
            closings.sort(key=lambda closing: closing.voucher.payload.provider)
            if amount == CAP:
                full = self._closed_full(closings)
            else:
                closing = self.chain.send(self.market.matcher, self.market.closings(closings)).gas
        n = len(pairs)
        return Life(opening // n, closing // n, full // n, settling // n)

    def _vouchers(self, pairs: Pairs, leases: Sequence[LeaseKey]) -> SettleBatch:
        return SettleBatch(
            vouchers=tuple(
                self.market.voucher(buyer, lease, CAP // 10)
                for (_, buyer), lease in zip(pairs, leases, strict=True)
            )
        )

    def _closed_full(self, closings: Sequence[Closing]) -> int:
        """Vouchers of the whole cap need no Final."""
        entries = []
        for closing in closings:
            voucher = closing.voucher.payload
            numbers = voucher.index.to_bytes(4, "big") + voucher.seq.to_bytes(3, "big")
            amount = voucher.amount.value.to_bytes(6, "big")
            signature = compact(closing.voucher.signature)
            entries.append(voucher.provider.raw + numbers + amount + signature)
        call = lease_book.close_packed(b"".join(entries), False)
        return self.chain.send(self.market.matcher, call).gas
