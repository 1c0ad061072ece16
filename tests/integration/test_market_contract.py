"""The API does what its OpenAPI document says, whatever it is asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode, Response
from schemathesis.checks import CHECKS, load_all_checks

from cloud_gpu.protocol.codec import from_json
from cloud_gpu.protocol.effects import ListAsk, ReportBid, ReportIndex, ReportLease
from cloud_gpu.protocol.lease import LeaseReport, LeaseState
from cloud_gpu.protocol.match import BidReport, BidState
from cloud_gpu.protocol.units import TokenAmount
from market.api.errors import PROBLEM_TYPE, Problem
from market.api.routes import events
from market.store.database import Database
from tests.integration.test_market_pages import point
from tests.support.market_api import api_on
from tests.unit.market.builders import NOW_S, RULES, advert, machine, opened, order, price, sound

load_all_checks()
EXAMPLES = 12
HELD: list[Any] = CHECKS.get_by_names(
    [
        "response_headers_conformance",
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
    ]
)


@pytest.fixture(scope="module")
def contract(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[schemathesis.schemas.BaseSchema]:
    """Of a market with something in every public table; streams end before they begin."""
    folder: Path = tmp_path_factory.mktemp("market")
    database = Database(f"sqlite:///{folder / 'market.sqlite3'}")
    with closing(database), pytest.MonkeyPatch.context() as patch:
        patch.setattr(events, "STREAMS_MAX", 0)
        database.create(RULES.owner)
        api = api_on(database, RULES, {})
        bid = order("bob")
        lease = opened(bid.bid.payload, machine("ada"), price(1), at_s=NOW_S)
        report = LeaseReport(
            terms=lease.terms, bid=lease.bid, state=LeaseState.FUNDED, paid=TokenAmount(0)
        )
        api.inbox.keep([sound(bid)], api.clock.now())
        offered = [advert("ada", index) for index in range(3)]
        api.view.write(
            [
                *(ListAsk(ask=each.body.ask.payload.id, advert=each) for each in offered),
                ReportLease(report=report),
                ReportBid(report=BidReport(bid=bid.bid.payload.id, state=BidState.OPENED)),
                ReportIndex(report=point("A100-SXM4-80GB")),
            ]
        )
        yield schemathesis.openapi.from_asgi("/openapi.json", api.app)


def holds(answer: Response, case: schemathesis.Case[Any]) -> None:
    """What is documented of every answer, and of every refusal."""
    case.validate_response(answer, checks=HELD)
    if answer.headers["content-type"] == [PROBLEM_TYPE]:
        told = from_json(answer.content, Problem)
        assert told.status == answer.status_code
        assert told.field
        assert told.needed
    else:
        assert answer.status_code < 400 or case.path == "/healthz"


def test_whatever_is_handed_in_says_how_it_is_the_same_twice(
    contract: schemathesis.schemas.BaseSchema,
) -> None:
    keyed = {
        path
        for path, item in contract.raw_schema["paths"].items()
        for each in item.get("post", {}).get("parameters", ())
        if (each["name"], each["in"]) == ("Idempotency-Key", "header")
    }
    assert keyed == {
        "/v1/bids",
        "/v1/futures/orders",
        "/v1/group-buys",
        "/v1/group-buys/{campaign}/pledges",
    }


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.timeout(600)  # every route, sixty times
def test_every_route_answers_as_documented_and_never_fails(
    contract: schemathesis.schemas.BaseSchema, mode: GenerationMode
) -> None:
    asked = 0
    for found in contract.get_all_operations():
        operation: Any = found.ok()  # type: ignore[union-attr]  # an error is raised
        strategy = operation.as_strategy(generation_mode=mode)

        @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
        @given(case=strategy)
        def answers(case: schemathesis.Case[Any]) -> None:
            nonlocal asked
            asked += 1
            holds(case.call(), case)

        try:
            answers()
        except Unsatisfiable:  # nothing is wrong with a request that has no parameters
            assert mode is GenerationMode.NEGATIVE
    assert asked > 100
