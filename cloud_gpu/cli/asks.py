"""`cloud-gpu ls` and `cloud-gpu quote`: what is for sale, and what a wish would cost."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloud_gpu.cli.exits import ExitCode
from cloud_gpu.cli.failures import UsageWrong
from cloud_gpu.cli.invocation import Invocation
from cloud_gpu.cli.output import money, rate
from cloud_gpu.cli.requirements import (
    AuditBps,
    Count,
    Duration,
    ExcludeProvider,
    Gpu,
    Isolation,
    MaxPrice,
    Provider,
    Region,
    StartBy,
    Verified,
    requirement,
)
from cloud_gpu.cli.trading import table_of
from cloud_gpu.client import Client
from cloud_gpu.protocol.errors import NoMatch
from cloud_gpu.protocol.orders import SignedAdvert
from cloud_gpu.protocol.units import format_tokens
from cloud_gpu.query import Query
from cloud_gpu.query_text import QueryUnclear, parse_query
from cloud_gpu.quoting import AskView, Quote

if TYPE_CHECKING:
    from rich.table import Table


class Sort(StrEnum):
    """Order of `ls`; a minus at the end: falling."""

    PRICE = "price"
    PRICE_FALLING = "price-"
    GPU = "gpu"
    COUNT = "count"
    COUNT_FALLING = "count-"


def ls(
    run: Invocation,
    gpu: Annotated[
        str, typer.Option("--gpu", metavar="QUERY", help='"A100", "vram>=40GB region!=CN".')
    ] = "",
    count: Annotated[int | None, typer.Option("--count", min=1, help="GPUs.")] = None,
    sort: Annotated[Sort, typer.Option("--sort", help="Order.")] = Sort.PRICE,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 50,
) -> None:
    """List the asks that are on the market's book now."""
    query = _query(gpu)
    found = run.ask(run.settings(), _adverts)
    shown = _sorted([a for a in found if _wanted(a, query, count)], sort)[:limit]
    rows = [_row(place, advert) for place, advert in enumerate(shown, 1)]
    run.say.results("ask", rows, lambda: _asks_table(rows))
    if not found:
        run.say.progress("The book is empty: no provider asks at this market now.")
    elif not rows:
        run.say.progress(f"None of {len(found)} asks is like that.")
    else:
        run.say.next("cloud-gpu quote --gpu A100 --count 2 --duration 1h")


async def _adverts(client: Client) -> Sequence[SignedAdvert]:
    await client.market()
    return await client.asks()


def _query(gpu: str) -> Query:
    try:
        return parse_query(gpu)
    except QueryUnclear as error:
        raise UsageWrong(f"--gpu: {error}") from error


def _wanted(advert: SignedAdvert, query: Query, count: int | None) -> bool:
    profile, ask = advert.body.profile, advert.body.ask.payload
    limit, gpus = query.max_price, len(profile.gpus)
    return (
        query.wants(profile.gpu_class)
        and count in (None, gpus)
        and _helps(gpus, query)
        and (limit is None or ask.min_price_per_hour <= limit)
        and query.gpu_memory_need_mib <= min(gpu.memory_mib for gpu in profile.gpus)
        and query.terms(profile.gpu_class).unmet_by(profile, ask.provider) is None
    )


def _helps(gpus: int, query: Query) -> bool:
    """Whether a machine of so many GPUs is enough, or one of several that may be it together."""
    if query.count is None or (query.min_count or query.count) <= gpus <= query.count:
        return True
    return query.scope is not None and gpus < query.count


def _sorted(adverts: Sequence[SignedAdvert], sort: Sort) -> list[SignedAdvert]:
    falling = sort.endswith("-")
    cheapest = sorted(adverts, key=lambda a: a.body.ask.payload.min_price_per_hour.value)
    match sort.rstrip("-"):
        case "gpu":
            return sorted(cheapest, key=lambda a: a.body.profile.gpu_class)
        case "count":
            return sorted(cheapest, key=lambda a: len(a.body.profile.gpus), reverse=falling)
        case _:
            return cheapest[::-1] if falling else cheapest


def _row(place: int, advert: SignedAdvert) -> dict[str, Any]:
    ask, profile = advert.body.ask.payload, advert.body.profile
    return {
        "index": place,
        "ask": str(ask.id),
        "gpu_class": profile.gpu_class,
        "gpus": len(profile.gpus),
        "gpu_memory_mib": profile.gpus[0].memory_mib,
        "price": rate(ask.min_price_per_hour),
        "region": profile.region,
        "isolation": str(profile.isolation),
        "simulated": profile.simulated,
        "duration_s": [ask.min_duration, ask.max_duration],
        "provider": str(ask.provider),
        "machine": ask.index,
        "expires_at": ask.start_by,
    }


def _asks_table(rows: Sequence[dict[str, Any]]) -> Table:
    return table_of(
        ("GPUs", "memory", "a GPU-hour", "region", "isolation", "provider"),
        [
            (
                f"{row['gpus']} x {row['gpu_class']}" + " (simulated)" * row["simulated"],
                f"{row['gpu_memory_mib'] / 1024:.0f} GB",
                row["price"]["amount"],
                row["region"] or "-",
                row["isolation"],
                row["provider"][:10],
            )
            for row in rows
        ],
    )


def quote(
    run: Invocation,
    gpu: Gpu,
    count: Count = 1,
    max_price: MaxPrice = None,
    duration: Duration = "1h",
    start_by: StartBy = "60s",
    region: Region = None,
    isolation: Isolation = None,
    verified: Verified = False,
    audit_bps: AuditBps = None,
    exclude_provider: ExcludeProvider = None,
    provider: Provider = None,
) -> int:
    """Say what a lease would cost now, or what is in the way. Places nothing."""
    settings = run.settings(max_price=max_price)
    request = requirement(
        settings,
        gpu=gpu,
        count=count,
        duration=duration,
        start_by=start_by,
        region=region,
        isolation=isolation,
        verified=verified,
        audit_bps=audit_bps,
        exclude_provider=exclude_provider,
        provider=provider,
    )
    found = run.ask(settings, lambda client: client.quote(request))
    if found.blocking is not None:
        raise NoMatch(found.blocking)
    best = found.fitting[0]
    run.say.result("quote", _quote(found), lambda: _quote_text(best, len(found.fitting)))
    run.say.next(f"cloud-gpu run --gpu '{gpu}' --count {count} --duration {duration} -- COMMAND")
    return ExitCode.DONE


def _quote(found: Quote) -> dict[str, Any]:
    best = found.fitting[0]
    return {
        "fitting": len(found.fitting),
        "price": rate(best.ask.min_price_per_hour),
        "cost_max": money(best.cost),
        "gpu_class": best.product.gpu_class,
        "provider": str(best.ask.provider),
        "asks": [
            {"ask": str(v.ask.id), "price": rate(v.ask.min_price_per_hour)} for v in found.fitting
        ],
    }


def _quote_text(best: AskView, fitting: int) -> str:
    return (
        f"{best.product.slice_gpus} x {best.product.gpu_class} at"
        f" {format_tokens(best.ask.min_price_per_hour)} tokens a GPU-hour:"
        f" at most {format_tokens(best.cost)} tokens in all; {fitting} asks fit."
    )
