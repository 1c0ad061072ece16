"""An audit from the command line: rounds in, the first difference out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from cloud_gpu.protocol.codec import from_json
from cloud_gpu.protocol.errors import AuditFailed, SettingsInvalid
from cloud_gpu.protocol.receipts import SignedReceipt, signer_of_receipt
from cloud_gpu.protocol.rounds import PublishedRound, SignedHeader
from market.audit.auditing import Audited, Auditor
from market.cli.files import address_in


def parsed(lines: Iterator[bytes]) -> Iterator[tuple[PublishedRound, bytes]]:
    """Raises AuditFailed at what is no round."""
    for place, line in enumerate(lines, 1):
        try:
            yield from_json(line, PublishedRound), line.strip()
        except ValueError as error:
            raise AuditFailed(f"round {place}: not a published round: {error}") from error


def verify(
    lines: Iterator[bytes],
    *,
    market: str,
    receipts: Sequence[SignedReceipt],
    held: Sequence[SignedHeader],
    keep: Path | None,
) -> Audited:
    """Audit rounds to the end. Raises AuditFailed at the first difference, SettingsInvalid."""
    wanted = address_in(market, "--market") if market else None
    auditor: Auditor | None = None
    with ExitStack() as stack:
        try:
            copy = stack.enter_context(keep.open("xb")) if keep is not None else None
        except OSError as error:
            raise SettingsInvalid(f"--keep: {keep}: {error.strerror}") from error
        for each, line in parsed(lines):
            if auditor is None:
                facts = each.header.body.facts
                mine = [one for one in receipts if _is_of(one, wanted or facts.market, each)]
                if len(mine) != len(receipts):
                    raise SettingsInvalid("--receipt: one of them was not signed by this market")
                auditor = Auditor(wanted or facts.market, receipts, held)
            if copy is not None:
                copy.write(line + b"\n")
            if (found := auditor.check(each)) is not None:
                raise AuditFailed(str(found))
    if auditor is None:
        raise AuditFailed("round 1: nothing was published")
    if (found := auditor.end()) is not None:
        raise AuditFailed(str(found))
    return auditor.audited


def _is_of(receipt: SignedReceipt, market: object, first: PublishedRound) -> bool:
    return signer_of_receipt(receipt, first.header.body.facts.domain) == market
