"""The API over a real store, in this process, and the hands that reach behind it."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import httpx
import pytest
from fastapi import FastAPI

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.effects import ListProduct
from cloud_gpu.protocol.lease import Windows
from cloud_gpu.protocol.orders import SignedBid
from cloud_gpu.protocol.values import Address
from market.api.app import create_app
from market.api.errors import PROBLEM_TYPE, Problem
from market.api.front import Front
from market.api.limiting import Limiting
from market.api.metrics import Metrics
from market.books.ledger import Ledger
from market.receipts import receipt_signer
from market.rules import MarketRules
from market.standing import Standing
from market.store.database import Database
from market.store.futures import SqlFutures
from market.store.group_buys import SqlGroups
from market.store.inbox import SqlInbox
from market.store.news import SqlNews
from market.store.rounds import SqlRounds
from market.store.views import SqlBook
from tests.unit.market.builders import (
    DOMAIN,
    MARKET_KEY,
    NOW,
    RULES,
    product,
    standing,
)

DEPLOYMENT = Deployment(
    chain_id=DOMAIN.chain_id,
    lease_book=DOMAIN.verifying_contract,
    token=Address(b"\x0c" * 20),
    first_block=0,
    windows=Windows(start=10, claim=15, retire=30),
    bond_unit=RULES.bond_unit,
)


@dataclass
class StoppedClock:
    at: int = NOW

    def now(self) -> int:
        return self.at


@dataclass
class Api:
    """A client of an app, and what stands behind the app."""

    client: httpx.AsyncClient
    view: SqlBook
    inbox: SqlInbox
    futures: SqlFutures
    groups: SqlGroups
    rounds: SqlRounds
    clock: StoppedClock
    app: FastAPI
    arrivals: list[int] = field(default_factory=list)
    standing: Standing = field(default_factory=standing)

    async def place(self, signed: SignedBid) -> httpx.Response:
        return await self.client.post("/v1/bids", content=to_json(signed))

    async def problem(self, answer: httpx.Response) -> Problem:
        assert answer.headers["content-type"] == PROBLEM_TYPE
        found = from_json(answer.content, Problem)
        assert found.status == answer.status_code
        return found


class Endless(httpx.AsyncByteStream):
    """A body that never ends and does not say so."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        return b"x" * 1_024


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    found = Database(database_url)
    found.create(RULES.owner)
    yield found
    found.close()


@pytest.fixture
def market_rules() -> MarketRules:
    """Of the market under test; a test's own fixture may choose others."""
    return RULES


@pytest.fixture
def limits() -> dict[str, Any]:
    """Of the market under test; a test's own fixture may choose some."""
    return {}


def api_on(database: Database, rules: MarketRules, limits: dict[str, Any]) -> Api:
    """An app and what stands behind it; nobody serves it, and its client asks nobody."""
    view, inbox, clock, metrics = SqlBook(database), SqlInbox(database), StoppedClock(), Metrics()
    ledger = Ledger(RULES.bond_unit)
    ledger.apply(product())
    view.write([ListProduct(product=ledger.products[1])])
    futures, groups = SqlFutures(database), SqlGroups(database)
    rounds = SqlRounds(database)
    unasked = httpx.AsyncClient(verify=False)  # certificates take 50 ms
    found = Api(unasked, view, inbox, futures, groups, rounds, clock, FastAPI())
    front = Front(
        rules=rules,
        deployment=DEPLOYMENT,
        inbox=inbox,
        view=view,
        futures=futures,
        groups=groups,
        rounds=rounds,
        clock=clock,
        sign=receipt_signer(MARKET_KEY, DOMAIN),
        arrived=lambda: found.arrivals.append(1),
        standing=lambda: found.standing,
        metrics=metrics,
        limiting=Limiting(clock=clock, **limits),
        news=SqlNews(database),
    )
    found.app = create_app(front)
    return found


@pytest.fixture
async def api(
    database: Database, market_rules: MarketRules, limits: dict[str, Any]
) -> AsyncIterator[Api]:
    found = api_on(database, market_rules, limits)
    transport = httpx.ASGITransport(found.app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://market") as client:
        found.client = client
        yield found
