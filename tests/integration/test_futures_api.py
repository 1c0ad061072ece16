"""Futures over HTTP: the market's answers from a real store, with the matchmaker run by hand."""

from __future__ import annotations

import pytest

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.effects import MarketEffect, PublishRound, ReportIndex, Transact
from cloud_gpu.protocol.events import FutureSubmitted
from cloud_gpu.protocol.future_reports import (
    ContractReport,
    FutureReport,
    Position,
    SeriesReport,
)
from cloud_gpu.protocol.futures import FutureOrder
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.orders import Cancellation
from cloud_gpu.protocol.price_reports import CurvePoint, IndexPoint
from cloud_gpu.protocol.receipts import SignedReceipt
from cloud_gpu.protocol.signing import Signed, state
from cloud_gpu.protocol.units import BasisPoints, GpuSeconds, TokenAmount
from cloud_gpu.protocol.values import Digest
from market.audit.replaying import replay_lines
from market.rules import MarketRules, RulesSet
from tests.support.market_api import Api
from tests.unit.market.builders import A100, DOMAIN, NOW_S, key
from tests.unit.market.futures_builders import (
    FUTURES_RULES,
    SERIES,
    FuturesDesk,
    future,
    openings,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def market_rules() -> MarketRules:
    return FUTURES_RULES


async def placed(api: Api, order: Signed[FutureOrder]) -> SignedReceipt:
    answer = await api.client.post("/v1/futures/orders", content=to_json(order))
    assert answer.status_code == 201, answer.text
    return from_json(answer.content, SignedReceipt)


def carry_out(api: Api, effects: list[MarketEffect]) -> None:
    api.view.write([each for each in effects if not isinstance(each, Transact | PublishRound)])


async def test_an_order_goes_from_receipt_to_contract(api: Api) -> None:
    desk = FuturesDesk()
    buy, sell = future("bob", buys=True), future("ada", buys=False)
    for place, order in enumerate((buy, sell), 1):
        receipt = await placed(api, order)
        assert (receipt.body.order, receipt.body.inbox) == (order.payload.id, place)
        shown = await api.client.get(f"/v1/futures/orders/{order.payload.id}")
        assert from_json(shown.content, FutureReport).state is BidState.PENDING
    again = await api.client.post("/v1/futures/orders", content=to_json(sell))
    assert again.status_code == 200
    assert from_json(again.content, SignedReceipt).body.inbox == 2

    taken = api.inbox.after(0, 10)
    assert [each.order for each in taken if isinstance(each, FutureSubmitted)] == [buy, sell]
    effects = desk.tell(*taken)
    effects += desk.end_batch()
    (call,) = openings(effects)
    effects += desk.mine(desk.opened(call.pairs[0], call.price))
    carry_out(api, effects)

    shown = await api.client.get(f"/v1/futures/orders/{buy.payload.id}")
    assert from_json(shown.content, FutureReport).contracts[0].contract == 1
    answer = await api.client.get(f"/v1/futures/positions?account={key('ada').address}")
    (position,) = from_json(answer.content, list[Position])
    assert position.report.suggested == (0,)
    assert [each.step.value for each in position.steps] == ["fund", "nominate", "settle-default"]
    answer = await api.client.get("/v1/futures/series?product=1")
    (listed,) = from_json(answer.content, list[SeriesReport])
    assert listed.last is not None
    assert listed.last.price == call.price
    query = f"product=1&window_start={SERIES.window_start}&window_seconds={SERIES.window_seconds}"
    answer = await api.client.get(f"/v1/futures/history?{query}")
    assert [each.contract.id for each in from_json(answer.content, list[ContractReport])] == [1]
    answer = await api.client.get("/v1/futures/curve?product=1")
    (point,) = from_json(answer.content, list[CurvePoint])
    assert (point.day, point.per_hour) == (SERIES.window_start, TokenAmount(call.price.value))

    told = api.view.told() | api.futures.told()
    entries = [(RulesSet(rules=FUTURES_RULES), desk.log[0][1]), *desk.log]
    lines = list(replay_lines(lambda: entries, Digest(bytes(32)), told))
    assert b'"reports":3' in lines[-1], "two orders and a contract, byte for byte"


async def test_what_the_market_does_not_take(api: Api) -> None:
    for changes, status in (({"signer": "eve"}, 403), ({"units": 65}, 422)):
        order = future("bob", buys=True, **changes)
        answer = await api.client.post("/v1/futures/orders", content=to_json(order))
        assert answer.status_code == status, answer.text
        problem = await api.problem(answer)
        assert problem.field
        assert problem.needed
    wrong = {"Idempotency-Key": "mine"}
    body = to_json(future("bob", buys=True))
    answer = await api.client.post("/v1/futures/orders", content=body, headers=wrong)
    assert (await api.problem(answer)).field == "Idempotency-Key"
    assert not api.inbox.after(0, 10)
    unknown = await api.client.get(f"/v1/futures/orders/{Digest(bytes(32))}")
    assert unknown.status_code == 404
    bad = "product=1&window_start=7&window_seconds=3600"
    answer = await api.client.get(f"/v1/futures/history?{bad}")
    assert answer.status_code == 400


async def test_an_order_is_withdrawn_by_its_trader_alone(api: Api) -> None:
    order = future("bob", buys=True)
    await placed(api, order)
    path = f"/v1/futures/orders/{order.payload.id}/cancellation"
    for trader, status in (("eve", 403), ("bob", 202)):
        said = state(
            Cancellation(bid=order.payload.id), DOMAIN, key(trader), nonce=1, expiry=NOW_S + 60
        )
        answer = await api.client.post(path, content=to_json(said))
        assert answer.status_code == status, answer.text
    desk = FuturesDesk()
    carry_out(api, desk.tell(*api.inbox.after(0, 10)))
    shown = await api.client.get(f"/v1/futures/orders/{order.payload.id}")
    assert from_json(shown.content, FutureReport).state is BidState.CANCELLED


async def test_the_index_is_published(api: Api) -> None:
    point = IndexPoint(
        gpu_class=A100,
        at=NOW_S,
        per_hour=TokenAmount(1_234_567),
        is_stale=False,
        mean=None,
        quantity=GpuSeconds(3_600),
        pairs=5,
        concentration=BasisPoints(2_000),
    )
    carry_out(api, [ReportIndex(report=point)])
    answer = await api.client.get("/v1/index")
    assert from_json(answer.content, list[IndexPoint]) == [point]
