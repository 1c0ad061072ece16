"""`cloud-gpu group`: several buyers lock money for a block of machines, and get it or get it back.

A campaign is named by its id, the hash of its terms. What was pledged from here is remembered with
those terms, so that it can be taken back without any market.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloud_gpu.cli.campaigns import campaign_row, campaign_table, campaigns_table, notices_table
from cloud_gpu.cli.confirming import confirm
from cloud_gpu.cli.invocation import Invocation, price
from cloud_gpu.cli.output import money
from cloud_gpu.cli.requirements import Duration
from cloud_gpu.cli.trading import (
    SHOWN_DIGITS,
    MaybeProduct,
    Product,
    digest_of,
    hand_in,
    opened_group_buyer,
    taken_nonces,
)
from cloud_gpu.cli.verdicts import first_verdict, refusal
from cloud_gpu.ordering import product_words
from cloud_gpu.protocol.codec import from_builtins, to_builtins
from cloud_gpu.protocol.errors import Rejected
from cloud_gpu.protocol.group_buy import Campaign, Pledge
from cloud_gpu.protocol.group_reports import CampaignState, PledgeState
from cloud_gpu.protocol.signing import Signed
from cloud_gpu.protocol.units import TokenAmount, format_duration, format_tokens
from cloud_gpu.protocol.utc import format_utc
from cloud_gpu.protocol.values import ZERO_DIGEST, Digest

if TYPE_CHECKING:
    from cloud_gpu.group_buyer import GroupBuyer

_KIND = "pledges"

CampaignId = Annotated[
    str,
    typer.Argument(metavar="CAMPAIGN", help="Its id, or its beginning, as `group ls` shows it."),
]


def _meant(run: Invocation, buyer: GroupBuyer, campaign: str) -> Digest:
    """A campaign by its id, or the beginning of one that was pledged to or that the market keeps.

    Only a beginning asks the market. Raises UsageWrong.
    """
    noted = [known["campaign"] for known in run.outside.remembered(_KIND)]
    if len(campaign) < len(str(ZERO_DIGEST)):
        noted += [str(each.id) for each in buyer.market.campaigns(None, None)]
    return digest_of(campaign, "CAMPAIGN", noted)


def ls(
    run: Invocation,
    gpu: MaybeProduct = None,
    state: Annotated[
        CampaignState | None, typer.Option("--state", help="Only those that came so far.")
    ] = None,
) -> None:
    """List the campaigns that the market keeps, oldest first."""
    with opened_group_buyer(run, run.settings()) as buyer:
        names = {product.id: product_words(product) for product in buyer.products()}
        wanted = None if gpu is None else buyer.product(gpu).id
        found = buyer.market.campaigns(wanted, state)
        rows = [campaign_row(each, names) for each in found]
    run.say.results("campaign", rows, lambda: campaigns_table(rows))
    if not rows:
        run.say.progress("There is none. Products: " + "; ".join(names.values()))
        run.say.next("cloud-gpu group open --help")


def show(run: Invocation, campaign: CampaignId) -> None:
    """Show a campaign: what it misses, who pledged, what its machines cost elsewhere now."""
    with opened_group_buyer(run, run.settings()) as buyer:
        wanted = _meant(run, buyer, campaign)
        page = buyer.campaign(wanted)
        names = {product.id: product_words(product) for product in buyer.products()}
        row = campaign_row(page.report, names) | {
            "each": money(buyer.cost(page.report.campaign)),
            "spot": None if page.spot_per_hour is None else money(page.spot_per_hour.value),
            "of_spot_bps": page.of_spot_bps,
            "providers": [str(each) for each in page.report.providers],
            "why": str(page.report.rejection or ""),
            "pledges": [
                {
                    "place": each.place,
                    "buyer": str(each.buyer),
                    "yours": each.buyer == buyer.address,
                    "slices": each.slices,
                    "amount": money(each.amount),
                    "state": str(each.state),
                    "served": each.served,
                }
                for each in page.pledges
            ],
            "handed_in": _handed_in(run, buyer, wanted),
            "leases": [str(each.lease) for each in buyer.market.leases(wanted, buyer.address)],
        }
    run.say.result("campaign", row, lambda: campaign_table(row))


def _handed_in(run: Invocation, buyer: GroupBuyer, campaign: Digest) -> list[dict[str, Any]]:
    """Pledges handed in from here that are not locked, by the market's word."""
    rows = []
    for known in run.outside.remembered(_KIND):
        if known["campaign"] != str(campaign) or known["direct"]:
            continue
        pledge = digest_of(known["pledge"], "pledge")
        try:
            report = buyer.market.report(campaign, pledge)
        except Rejected as error:
            rows.append({"pledge": known["pledge"], "state": str(error.rejection.reason)})
            continue
        if report.place is None:
            why = str(report.rejection or "")
            rows.append({"pledge": known["pledge"], "state": str(report.state), "why": why})
    return rows


def open_(
    run: Invocation,
    gpu: Product,
    price: Annotated[
        str,
        typer.Option(
            "--price", parser=price, metavar="TOKENS", help='What all pay a GPU-hour: "1.20".'
        ),
    ],
    goal: Annotated[int, typer.Option("--goal", help="Machines without which no lease opens.")],
    deadline: Annotated[
        str,
        typer.Option("--deadline", metavar="UTC|DURATION", help='"2026-12-08T16:00", or "3d".'),
    ],
    duration: Duration = "1h",
    start: Annotated[
        str,
        typer.Option(
            "--start", metavar="UTC|DURATION", help="When its leases may open; default: at once."
        ),
    ] = "",
    provider: Annotated[
        list[str] | None,
        typer.Option("--provider", metavar="0x…", help="Only these may serve it; repeatable."),
    ] = None,
) -> None:
    """Open a campaign: machines at one price, if enough are pledged for by a deadline.

    It locks nothing, and gives you no rights: pledge to it like anybody.
    """
    with opened_group_buyer(run, run.settings()) as buyer:
        offer = buyer.offer(
            gpu,
            price=price,
            duration=duration,
            goal=goal,
            deadline=deadline,
            start=start,
            providers=provider or (),
        )
        said = offer.campaign
        each = buyer.cost(said)
        name = buyer.open(offer)
        found = first_verdict(
            run,
            f"cloud-gpu group show {name}",
            lambda: buyer.market.campaign(name).report,
            lambda report: report.number > 0,  # the market's number: it has judged it
        )
        if found is not None and found.state is CampaignState.REFUSED:
            raise refusal(found.rejection, str(found.state), "cloud-gpu group open --help")
    row = {"campaign": str(name), **_offered(said, each)}
    run.say.result("campaign-opened", row, lambda: f"Opened {name}.")
    run.say.next(f"cloud-gpu group pledge {name} --slices 1")


def _offered(said: Campaign, each: TokenAmount) -> dict[str, Any]:
    return {
        "product": said.product,
        "price": money(said.price_per_hour.value),
        "duration_s": said.duration,
        "each": money(each),
        "goal": said.goal,
        "start": format_utc(said.window_start),
        "deadline": format_utc(said.deadline),
    }


def pledge(
    run: Invocation,
    campaign: CampaignId,
    slices: Annotated[int, typer.Option("--slices", help="Machines that you want.")] = 1,
    direct: Annotated[
        bool, typer.Option("--direct", help="Lock it yourself, at your own cost of gas.")
    ] = False,
) -> None:
    """Lock the price of so many machines of a campaign. It cannot be withdrawn.

    When enough are pledged, each becomes an ordinary lease of yours. Else it comes back after the
    deadline.
    """
    with opened_group_buyer(run, run.settings()) as buyer:
        wanted = _meant(run, buyer, campaign)
        terms = buyer.campaign(wanted).report.campaign
        signed = buyer.pledge(terms, slices, taken_nonces(run))
        amount = signed.payload.max_amount
        confirm(
            run,
            f"Lock {format_tokens(amount)} tokens for {slices} x {format_duration(terms.duration)}"
            f" of a machine, not to be withdrawn before {format_utc(terms.deadline)}?",
        )
        row = _pledge_row(signed, terms, direct=direct)
        if direct:
            run.outside.remember(_KIND, [row])
            buyer.lock(terms, signed)
            is_locked = True
        else:
            is_locked = _handed_in_and_locked(run, buyer, signed, row)
    told = {name: row[name] for name in ("pledge", "campaign", "slices")}
    told |= {"amount": money(amount), "locked": is_locked}
    done = "Locked." if is_locked else "Handed in; the market has it locked on chain soon."
    run.say.result("pledge", told, lambda: done)
    name = row["campaign"][:SHOWN_DIGITS]
    run.say.next(f"cloud-gpu take {name}, which waits until your lease opens, and starts it")


def _handed_in_and_locked(
    run: Invocation, buyer: GroupBuyer, signed: Signed[Pledge], row: dict[str, Any]
) -> bool:
    """Hand a pledge in; whether it was locked while we looked. Raises Rejected if it never is."""
    look = f"cloud-gpu group show {row['campaign'][:SHOWN_DIGITS]}"
    hand_in(run, _KIND, row, lambda: buyer.hand_in(signed), f"it may be locked: {look}")
    said = signed.payload
    found = first_verdict(
        run,
        look,
        lambda: buyer.market.report(said.campaign_id, said.id),
        lambda report: report.state is not PledgeState.WAITING,
    )
    if found is not None and found.state is PledgeState.REFUSED:
        raise refusal(found.rejection, str(found.state), look)
    return found is not None and found.state is not PledgeState.WAITING


def _pledge_row(signed: Signed[Pledge], terms: Campaign, *, direct: bool) -> dict[str, Any]:
    said = signed.payload
    return {
        "pledge": str(said.id),
        "campaign": str(said.campaign_id),
        "slices": said.slices,
        "nonce": said.nonce,
        "expires_at": terms.deadline,
        "direct": direct,
        "terms": to_builtins(terms),
    }


def refund(run: Invocation, campaign: CampaignId) -> None:
    """Take back what you pledged to a campaign that did not close by its deadline.

    The market does it, too; this needs no market, if you pledged from here.
    """
    with opened_group_buyer(run, run.settings()) as buyer:
        wanted = _meant(run, buyer, campaign)
        amount = buyer.refund(_terms(run, buyer, wanted))
    payload = {"campaign": campaign, "refunded": money(amount)}
    run.say.result("pledge-refunded", payload, lambda: f"{format_tokens(amount)} tokens are back.")


def _terms(run: Invocation, buyer: GroupBuyer, campaign: Digest) -> Campaign:
    for known in run.outside.remembered(_KIND):
        if known["campaign"] == str(campaign):
            return from_builtins(known["terms"], Campaign)
    return buyer.campaign(campaign).report.campaign


def notices(
    run: Invocation,
    after: Annotated[int, typer.Option("--after", min=0, help="Only those after this number.")] = 0,
) -> None:
    """List what this account should know of its campaigns, oldest first."""
    with opened_group_buyer(run, run.settings()) as buyer:
        rows = [
            {
                "number": each.number,
                "at": format_utc(each.at),
                "campaign": str(each.campaign),
                "kind": str(each.kind),
                "slices": each.slices,
                "goal": each.goal,
                "amount": money(each.amount),
                "leases": [str(lease) for lease in each.leases],
            }
            for each in buyer.market.notices(buyer.address, after)
        ]
    run.say.results("notice", rows, lambda: notices_table(rows))
