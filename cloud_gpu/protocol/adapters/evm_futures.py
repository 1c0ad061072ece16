"""Futures in Python: calls as calldata, logs as chain events."""

from __future__ import annotations

from typing import Any, Final, assert_never

from cloud_gpu.protocol import future_events as events
from cloud_gpu.protocol.adapters.bindings import futures as bound
from cloud_gpu.protocol.adapters.evm_bound import Call
from cloud_gpu.protocol.adapters.evm_skips import rejection_of
from cloud_gpu.protocol.calls import (
    DeliverFuture,
    FutureCall,
    LapseFuture,
    OpenFutures,
    SettleDefault,
    SettleUnit,
)
from cloud_gpu.protocol.future_events import FutureEnd, UnitEnd
from cloud_gpu.protocol.futures import FutureOrder, FuturePair, Series
from cloud_gpu.protocol.lease import LeaseKey, MachineKey
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Digest

_CONTRACT_ENDS: Final = (
    FutureEnd.LONG_DEFAULT,
    FutureEnd.SHORT_DEFAULT,
    FutureEnd.BOTH_DEFAULT,
    FutureEnd.LAPSED,
)
_UNIT_ENDS: Final = (None, UnitEnd.HELD, UnitEnd.BROKEN_BY_LONG, UnitEnd.BROKEN_BY_SHORT)
"""By their numbers in types/Futures.sol; a unit that runs has not ended."""


def future_call(call: FutureCall) -> Call[None]:
    """The function of Futures that does it."""
    match call:
        case OpenFutures():
            series = bound.Series(*call.series.key)
            pairs = tuple(_pair(each) for each in call.pairs)
            return bound.open_futures(series, call.price.value, pairs)
        case DeliverFuture(contract=contract, machines=machines):
            return bound.deliver(contract, machines)
        case SettleDefault(contract=contract):
            return bound.settle_default(contract)
        case LapseFuture(contract=contract):
            return bound.lapse(contract)
        case SettleUnit(lease=lease):
            return bound.settle_unit(lease.provider, lease.index, lease.seq)
        case _:
            assert_never(call)


def _pair(pair: FuturePair) -> bound.FuturePair:
    signatures = pair.buy.signature.raw, pair.sell.signature.raw
    return bound.FuturePair(
        _order(pair.buy.payload), _order(pair.sell.payload), pair.units, *signatures
    )


def _order(order: FutureOrder) -> bound.FutureOrder:
    return bound.FutureOrder(
        trader=order.trader,
        is_buy=order.is_buy,
        product=order.product,
        window_start=order.window_start,
        window_seconds=order.window_seconds,
        units=order.units,
        limit_price_per_hour=order.limit_price_per_hour.value,
        start_by=order.start_by,
        nonce=order.nonce,
        matcher=order.matcher,
    )


def future_event(
    name: str, a: dict[str, Any], at: int
) -> events.FutureEvent | events.FutureOrderClosed | None:
    """The event of a decoded log in a block of time `at`; None for logs that tell no party."""
    if name == "FutureOrderClosed":
        return events.FutureOrderClosed(order=Digest(a["orderHash"]), trader=a["trader"], at=at)
    contract: int | None = a.get("contractId")
    if contract is None:
        return None
    if "machineKey" in a:
        return _unit_event(name, a, contract, at)
    match name:
        case "FutureOpened":
            return _opened(a, at)
        case "FutureAssigned":
            return events.FutureAssigned(
                contract=contract,
                is_buy=a["isBuy"],
                leaver=a["leaver"],
                joiner=a["joiner"],
                at=at,
            )
        case "FutureFunded":
            return events.FutureFunded(contract=contract, amount=TokenAmount(a["amount"]), at=at)
        case "MachinesNominated":
            return events.MachinesNominated(contract=contract, indexes=tuple(a["indexes"]), at=at)
        case "FutureDelivered":
            delivered: int = a["delivered"]
            return events.FutureDelivered(
                contract=contract, delivered=delivered, **_shares(a), at=at
            )
        case "FutureEnded":
            end = _CONTRACT_ENDS[a["end"]]
            return events.FutureEnded(contract=contract, end=end, **_shares(a), at=at)
        case _:
            return None


def _opened(a: dict[str, Any], at: int) -> events.FutureOpened:
    product, window_start, window_seconds = a["series"]
    return events.FutureOpened(
        contract=a["contractId"],
        long=a["long"],
        short=a["short"],
        series=Series(product=product, window_start=window_start, window_seconds=window_seconds),
        per_hour=TokenAmount(a["price"]),
        units=a["units"],
        long_margin=TokenAmount(a["longMargin"]),
        short_margin=TokenAmount(a["shortMargin"]),
        buy=Digest(a["buyHash"]),
        sell=Digest(a["sellHash"]),
        at=at,
    )


def _unit_event(name: str, a: dict[str, Any], contract: int, at: int) -> events.FutureEvent | None:
    machine = MachineKey.from_word(a["machineKey"])
    if name == "UnitFailed":
        rejection = rejection_of(a["code"])
        return events.UnitFailed(contract=contract, machine=machine, rejection=rejection, at=at)
    lease = LeaseKey(provider=machine.provider, index=machine.index, seq=a["seq"])
    match name:
        case "UnitDelivered":
            return events.UnitDelivered(
                contract=contract,
                lease=lease,
                long_margin=TokenAmount(a["longMargin"]),
                short_margin=TokenAmount(a["shortMargin"]),
                at=at,
            )
        case "UnitEnded":
            end = _UNIT_ENDS[a["end"]]
            assert end is not None, "Futures tells of ends alone"
            return events.UnitEnded(
                contract=contract, lease=lease, end=end, left_s=a["left"], at=at
            )
        case "UnitSettled":
            return events.UnitSettled(contract=contract, lease=lease, **_shares(a), at=at)
        case _:
            return None


def _shares(a: dict[str, Any]) -> dict[str, TokenAmount]:
    return {"to_long": TokenAmount(a["toLong"]), "to_short": TokenAmount(a["toShort"])}
