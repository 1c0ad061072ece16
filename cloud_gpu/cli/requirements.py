"""The requirement flags, the same words in every command that looks for GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from cloud_gpu.bidding import AUDIT_SHARE, LeaseRequest, WordUnclear, wish
from cloud_gpu.cli.failures import UsageWrong
from cloud_gpu.cli.flags import flag_of
from cloud_gpu.cli.invocation import price
from cloud_gpu.protocol.errors import SettingsInvalid
from cloud_gpu.settings import Settings

Gpu = Annotated[
    str,
    typer.Option(
        "--gpu",
        metavar="QUERY",
        help='"A100", "A100:80GB:2", "gpu in [A100,H100] vram>=40GB region!=CN".',
    ),
]
Count = Annotated[int, typer.Option("--count", min=1, help="GPUs of the lease.")]
MaxPrice = Annotated[
    str | None,
    typer.Option(
        "--max-price", parser=price, metavar="TOKENS", help='Limit in tokens a GPU-hour: "1.20".'
    ),
]
Duration = Annotated[str, typer.Option("--duration", help='How long at most: "2h", "90s".')]
StartBy = Annotated[str, typer.Option("--start-by", help="How long the bid stands.")]
Region = Annotated[str | None, typer.Option("--region", help='A country or continent: "EU".')]
Isolation = Annotated[
    str | None, typer.Option("--isolation", help="At least: process, container, gvisor or vm.")
]
Provider = Annotated[
    str | None, typer.Option("--provider", metavar="0x…", help="Only this one may get it.")
]
ExcludeProvider = Annotated[
    list[str] | None,
    typer.Option("--exclude-provider", metavar="0x…", help="May not get it; repeatable."),
]
Verified = Annotated[
    bool, typer.Option("--verified", help="Hold the pay until the results were audited.")
]
OneRound = Annotated[
    bool,
    typer.Option(
        "--one-round",
        help="Take what the next round gives, with --block the next auction, or nothing.",
    ),
]
Interruptible = Annotated[
    bool,
    typer.Option("--interruptible", help="Its provider may end it after the product's notice."),
]
MinCount = Annotated[
    int, typer.Option("--min-count", min=0, help="Fewer GPUs that will do, down to this.")
]
Scope = Annotated[
    str | None,
    typer.Option("--scope", help="Let several machines make it up: node, fabric, region, any."),
]
Chunk = Annotated[
    int, typer.Option("--chunk", min=0, help="GPUs that come together at each of their nodes.")
]
StartAfter = Annotated[
    str | None, typer.Option("--start-after", help='Not before this time has passed: "30m".')
]
Block = Annotated[
    bool,
    typer.Option(
        "--block",
        help="Sealed, for the next block auction; let --start-by reach it. Cleared, it is"
        " published: a bid that lost is known in later ones, but for --one-round.",
    ),
]
AuditBps = Annotated[
    int | None, typer.Option("--audit-bps", help="Of the pay, on top of it, to the audits.")
]


def requirement(
    settings: Settings,
    *,
    gpu: str,
    count: int,
    duration: str,
    start_by: str,
    region: str | None,
    isolation: str | None,
    verified: bool = False,
    audit_bps: int | None = None,
    exclude_provider: Sequence[str] | None = None,
    provider: str | None = None,
    one_round: bool = False,
    interruptible: bool = False,
    min_count: int = 0,
    scope: str | None = None,
    chunk: int = 0,
    start_after: str | None = None,
    block: bool = False,
) -> LeaseRequest:
    """The flags and the standing price limit as one request. Raises UsageWrong, SettingsInvalid."""
    settings.need("max_price")
    try:
        return wish(
            gpu_type=gpu,
            count=count,
            max_price=settings.max_price,
            duration=duration,
            start_timeout=start_by,
            region=region,
            isolation=isolation,
            verified=verified,
            audit_bps=AUDIT_SHARE.value if audit_bps is None else audit_bps,
            exclude_providers=exclude_provider or (),
            provider=provider,
            one_round=one_round,
            interruptible=interruptible,
            min_count=min_count,
            scope=scope,
            chunk=chunk,
            start_after=start_after or 0,
            block=block,
        )
    except WordUnclear as error:
        origin = settings.origin(error.field)
        if origin not in ("default", "flag"):
            raise SettingsInvalid(f"{error.field} ({origin}): {error.problem}") from error
        raise UsageWrong(f"{flag_of(error.field)}: {error.problem}") from error


def flags(request: LeaseRequest) -> list[str]:
    """A request for one lease as the flags of `up`, the limit price aside."""
    words = ["--gpu", request.gpu_type, "--count", str(request.count)]
    words += ["--duration", str(request.duration), "--start-by", str(request.start_timeout)]
    words += ["--region", request.region] if request.region else []
    words += ["--isolation", str(request.isolation)]
    words += ["--verified", "--audit-bps", str(request.audit_bps.value)] * request.verified
    for excluded in request.excluded_providers:
        words += ["--exclude-provider", str(excluded)]
    words += [] if request.provider.is_zero else ["--provider", str(request.provider)]
    words += ["--interruptible"] * request.interruptible
    return words


def wishes(request: LeaseRequest) -> dict[str, Any]:
    """A request in the words of a session."""
    return {
        "gpu_type": request.gpu_type,
        "count": request.count,
        "timeout": request.duration,
        "start_timeout": request.start_timeout,
        "region": request.region or None,
        "isolation": str(request.isolation),
        "verified": request.verified,
        "audit_bps": request.audit_bps.value,
        "exclude_providers": request.excluded_providers,
        "one_round": request.one_round,
        "interruptible": request.interruptible,
        "min_count": request.min_count,
        "start_after": request.start_after,
        "provider": None if request.provider.is_zero else request.provider,
    }
