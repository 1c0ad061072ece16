"""A trader with a pretended wallet and market: what it signs, and what it refuses before that."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cloud_gpu.ordering import FutureRequest, read_series
from cloud_gpu.protocol.errors import (
    FundsTooSmall,
    MarketUnavailable,
    Rejected,
    RejectReason,
    SettingsInvalid,
)
from cloud_gpu.protocol.futures import Assignment, FutureOrder, HeldContract
from cloud_gpu.protocol.identity import LocalKey, NoDelegates
from cloud_gpu.protocol.lease import MachineKey, MachineStatus
from cloud_gpu.protocol.orders import SignedCancellation
from cloud_gpu.protocol.ports import AccountView, MachineView
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.receipts import Receipt, SignedReceipt, sign_receipts
from cloud_gpu.protocol.signing import Signed, Verified, verify
from cloud_gpu.protocol.units import Price, TokenAmount
from cloud_gpu.protocol.utc import parse_utc
from cloud_gpu.protocol.values import Address, Digest
from cloud_gpu.testing.world import DEPLOYMENT, MATCHER
from cloud_gpu.trader import Trader
from tests.unit.buyer.builders import MARKET
from tests.unit.buyer.test_ordering import PRODUCTS

NOW = parse_utc("2026-12-01")
KEY, OTHER = LocalKey(b"\x01" * 32), LocalKey(b"\x02" * 32)
STRANGER = LocalKey(b"\x21" * 32)
ISSUED = msgspec.structs.replace(DEPLOYMENT, futures=Address(b"\x0f" * 20))
SERIES = read_series(product=2, start="2026-12-08", length="1d", at=NOW)
REQUEST = FutureRequest(is_buy=True, series=SERIES, units=1, limit=Price(1_000_000))
CONTRACT = HeldContract(
    id=1,
    long=KEY.address,
    short=OTHER.address,
    series=SERIES,
    per_hour=TokenAmount(1_000_000),
    units=2,
    long_margin=TokenAmount(14_400_000),
    short_margin=TokenAmount(24_000_000),
    is_funded=False,
    is_nominated=False,
)


class Ledger:
    """Accounts, contracts, and the calls that were made."""

    def __init__(self, contract: HeldContract | None = CONTRACT) -> None:
        self.held = contract
        self.now, self.cash, self.id = NOW, 1_000_000_000, 7
        self.calls: list[tuple[Any, ...]] = []

    def contract(self, number: int) -> HeldContract | None:
        return self.held if number == 1 else None

    def count(self) -> int:
        return 2

    def close_order(self, order: Digest) -> None:
        self.calls.append(("close", order))

    def fund(self, number: int) -> None:
        self.calls.append(("fund", number))

    def nominate(self, number: int, indexes: tuple[int, ...]) -> None:
        self.calls.append(("nominate", number, indexes))

    def assign(self, assignment: Signed[Assignment]) -> None:
        self.calls.append(("assign", assignment.payload.joiner))


class PretendAccount:
    def __init__(self, key: LocalKey, ledger: Ledger) -> None:
        self.address, self.futures = key.address, ledger

    def account(self) -> AccountView:
        ledger = self.futures
        return AccountView(id=ledger.id, cash=TokenAmount(ledger.cash), nonce_base=0, nonce_bits=1)

    def products(self) -> tuple[Product, ...]:
        return PRODUCTS

    def chain_time(self) -> int:
        return self.futures.now

    def machine(self, key: MachineKey) -> MachineView:
        assert key.provider == self.address
        nothing = TokenAmount(0)
        return MachineView(
            status=MachineStatus.FREE,
            product=2,
            bond=nothing,
            locked=nothing,
            seq=0,
            next_seq=10 + key.index,
            cap=nothing,
            paid=nothing,
            buyer_id=0,
            start=0,
            duration=0,
            market_id=0,
        )

    def cancel_asks(self, index: int, next_seq: int) -> None:
        self.futures.calls.append(("cancel-asks", index, next_seq))


class PretendMarket:
    def __init__(self) -> None:
        self.view, self.placed = MARKET, list[Signed[FutureOrder]]()
        self.cancelled: list[SignedCancellation] = []
        self.key, self.names = MATCHER, list[Digest]()
        """Who signs its receipts, and for what instead of the order."""
        self.received_at = NOW * 1000

    def describe(self) -> Any:
        return self.view

    def place(self, order: Signed[FutureOrder]) -> SignedReceipt:
        self.placed.append(order)
        (name,) = self.names or [order.payload.id]
        body = Receipt(order=name, inbox=1, received_at=self.received_at)
        return sign_receipts([body], self.key, ISSUED.domain, life_s=60)[0]

    def cancel(self, statement: SignedCancellation) -> None:
        self.cancelled.append(statement)


class Clock:
    def now(self) -> int:
        return NOW * 1000


def trader_of(ledger: Ledger, key: LocalKey = KEY, market: Any = None) -> Trader:
    asked: Any = PretendMarket() if market is None else market
    return Trader(
        account=PretendAccount(key, ledger),
        signer=key,
        market=asked,
        deployment=ISSUED,
        clock=Clock(),
        draw=lambda: 0,
    )


def test_a_receipt_that_is_not_the_markets_for_this_order_is_none() -> None:
    trader = trader_of(Ledger(), market=(market := PretendMarket()))
    order = trader.order(REQUEST)
    assert trader.place(order).body.order == order.payload.id
    market.names = [Digest(b"\x07" * 32)]
    with pytest.raises(MarketUnavailable, match="it names 0x0707"):
        trader.place(order)
    market.key, market.names = STRANGER, []
    with pytest.raises(MarketUnavailable, match="receipt is not one for"):
        trader.place(order)
    market.key, market.received_at = MATCHER, (NOW + 86_400) * 1000
    with pytest.raises(MarketUnavailable, match="86400 s ahead of this machine's clock"):
        trader.place(order)


def test_words_are_signed_and_handed_in() -> None:
    market = PretendMarket()
    trader = trader_of(Ledger(), market=market)
    order = trader.buy("A100:2", start="2026-12-08", length="1d", units=3, max_price="1.20")
    assert market.placed == [order]
    said = order.payload
    assert (said.series, said.units, said.matcher) == (SERIES, 3, MARKET.matcher)
    assert (said.nonce, said.start_by) == (1, NOW + 3_600)
    checked = verify(order, ISSUED.futures_domain, account=KEY.address, keys=NoDelegates(), at=NOW)
    assert isinstance(checked, Verified)
    later = trader.sell(2, start="7d", length="1d", min_price="1.20")
    assert later.payload.series == SERIES


def test_an_order_is_closed_on_chain_before_the_market_is_asked_to_forget_it() -> None:
    ledger, market = Ledger(), PretendMarket()
    trader = trader_of(ledger, market=market)
    key = trader.order(REQUEST).payload.id
    trader.cancel(key)
    assert ledger.calls == [("close", key)]
    assert [each.body.bid for each in market.cancelled] == [key]


def test_an_order_takes_no_nonce_of_another_and_ends_with_its_window() -> None:
    ledger = Ledger()
    ledger.now = ISSUED.futures_rules.lead * -1 + SERIES.window_start - 60
    said = trader_of(ledger).order(REQUEST, taken={1, 2}).payload
    assert said.nonce == 3
    assert said.start_by == ledger.now + 60, "no contract opens after the deadline"


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (SERIES.window_start - 24 * 3600, RejectReason.EXPIRED),
        (SERIES.window_start - 400 * 24 * 3600, RejectReason.DURATION_OUTSIDE_LIMITS),
    ],
)
def test_a_window_must_be_open(at: int, reason: RejectReason) -> None:
    ledger = Ledger()
    ledger.now = at
    with pytest.raises(Rejected) as caught:
        trader_of(ledger).order(REQUEST)
    rejection = caught.value.rejection
    assert (rejection.reason, rejection.field) == (reason, "start")
    assert "2026-12-08T00:00Z" in rejection.found


def test_the_margin_must_be_there() -> None:
    ledger = Ledger()
    ledger.cash = 7_199_999
    with pytest.raises(FundsTooSmall) as caught:
        trader_of(ledger).order(REQUEST)
    assert (caught.value.needed, caught.value.have) == (7_200_000, 7_199_999)
    ledger.id = 0
    with pytest.raises(Rejected, match="not registered"):
        trader_of(ledger).order(REQUEST)


def test_a_market_of_another_chain_is_refused() -> None:
    market = PretendMarket()
    market.view = msgspec.structs.replace(MARKET, chain_id=MARKET.chain_id + 1)
    with pytest.raises(SettingsInvalid, match="found one for LeaseBook"):
        trader_of(Ledger(), market=market).order(REQUEST)


def test_a_long_funds_and_a_short_nominates() -> None:
    ledger = Ledger()
    assert trader_of(ledger).contracts.may_fund(1) == TokenAmount(96_000_000)
    trader_of(ledger).contracts.fund(1)
    trader_of(ledger, OTHER).contracts.nominate(1, [4, 2])
    asked_before = [("cancel-asks", 4, 15), ("cancel-asks", 2, 13)]
    assert ledger.calls == [("fund", 1), ("nominate", 1, (4, 2)), *asked_before]


@pytest.mark.parametrize(
    ("key", "changes", "call", "found"),
    [
        (OTHER, {}, ("may_fund", 1), "contract: found long 0x"),
        (KEY, {}, ("may_nominate", 1, [0]), "contract: found short 0x"),
        (KEY, {"is_funded": True}, ("may_fund", 1), "which is funded"),
        (KEY, {}, ("may_fund", 2), "2, which was delivered or ended"),
        (KEY, {}, ("may_fund", 3), "found 3, needed 1 to 2, which have opened so far"),
        (OTHER, {}, ("may_nominate", 1, []), "machines: found none"),
        (OTHER, {}, ("may_nominate", 1, [1, 1]), "1 to 2 different machines of product 2"),
        (OTHER, {}, ("may_nominate", 1, [0, 1, 2]), "machines: found 0, 1, 2"),
    ],
)
def test_what_a_contract_does_not_allow_is_refused_before_it_is_sent(
    key: LocalKey, changes: dict[str, Any], call: tuple[Any, ...], found: str
) -> None:
    ledger = Ledger(msgspec.structs.replace(CONTRACT, **changes))
    with pytest.raises(Rejected) as caught:
        getattr(trader_of(ledger, key).contracts, call[0])(*call[1:])
    assert found in str(caught.value)


def test_past_the_deadline_nothing_is_sent() -> None:
    ledger = Ledger()
    ledger.now = SERIES.window_start - 24 * 3600 + 1
    for key, call in ((KEY, ("fund", 1)), (OTHER, ("nominate", 1, [0]))):
        with pytest.raises(Rejected, match="2026-12-07T00:00Z"):
            getattr(trader_of(ledger, key).contracts, call[0])(*call[1:])
    assert ledger.calls == []


def test_a_side_goes_to_who_signed_for_it() -> None:
    ledger, third = Ledger(), LocalKey(b"\x03" * 32)
    words: dict[str, Any] = {
        "is_buy": True,
        "pays": TokenAmount(5),
        "receives": TokenAmount(7),
        "stands_s": 60,
    }
    signed = trader_of(ledger, third).contracts.join(1, **words)
    said = signed.payload
    assert (said.leaver, said.joiner, said.expiry) == (KEY.address, third.address, NOW + 60)
    assert (said.joiner_pays, said.leaver_pays) == (TokenAmount(5), TokenAmount(7))
    trader_of(ledger).contracts.assign(signed)
    assert ledger.calls == [("assign", third.address)]

    with pytest.raises(Rejected, match="this account is a side"):
        trader_of(ledger, OTHER).contracts.join(1, **words)
    with pytest.raises(Rejected, match="found long"):
        trader_of(ledger, third).contracts.assign(signed)
    ledger.now += 61
    with pytest.raises(Rejected, match="expiry"):
        trader_of(ledger).contracts.assign(signed)
    ledger.held = msgspec.structs.replace(CONTRACT, is_funded=True)
    for key, call in ((KEY, "may_assign"), (third, "join")):
        arguments = (signed,) if call == "may_assign" else (1,)
        ledger.now = NOW
        with pytest.raises(Rejected, match="its long stays"):
            getattr(trader_of(ledger, key).contracts, call)(
                *arguments, **({} if call == "may_assign" else words)
            )
