"""`cloud-gpu-market prove` and `check-proof`: a small file that convicts a market."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.errors import AuditFailed, SettingsInvalid
from cloud_gpu.protocol.values import Digest
from market.audit.auditing import signer_of
from market.audit.proof_claims import check_proof
from market.audit.proofs import Proof, ProofFails
from market.audit.proving import Prover
from market.cli.files import (
    AnyMarket,
    HeaderFiles,
    ReceiptFiles,
    address_in,
    headers_in,
    read_file,
    receipts_in,
)
from market.cli.options import outside_of
from market.cli.verifying import parsed


def prove(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="Published rounds: a market's URL, or a file or folder with them.",
            show_default=False,
        ),
    ],
    number: Annotated[
        int, typer.Option("--round", help="Which round shows it; 0: the newest.", min=0)
    ] = 0,
    order: Annotated[
        str, typer.Option("--bid", metavar="ID", help="The bid, or the ask, that it concerns.")
    ] = "",
    receipts: ReceiptFiles = None,
    headers: HeaderFiles = None,
    market: AnyMarket = "",
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write it there, instead of to the terminal."),
    ] = None,
) -> None:
    """Prove that a market broke its own rule: in a file that convicts it without its help.

    About a bid (or an ask) in a round; about a receipt whose order is not in the log; or about a
    header that you kept, where the rounds now have another. Ends with an error when there is
    nothing to prove.
    """
    if sum(map(bool, (order, receipts, headers))) != 1:
        raise SettingsInvalid("one of --bid, --receipt and --header is needed: what is it about?")
    prover: Prover | None = None
    try:
        for each, _ in parsed(outside_of(context).rounds(source)):
            facts = each.header.body.facts
            if prover is None:
                wanted = address_in(market, "--market") if market else facts.market
                prover = Prover(wanted)
            if signer_of(each.header) != wanted:
                raise AuditFailed(f"round {facts.number}, header.signature: not {wanted}'s")
            prover.take(each)
            if facts.number == number:
                break
        if prover is None or (number and prover.number != number):
            raise AuditFailed(f"there is no round {number or 1}")
        if order:
            proof = prover.prove(_digest(order))
        elif receipts:
            proof = prover.prove_unread(receipts_in(receipts)[0])
        else:
            proof = prover.prove_fork(headers_in(headers)[0])
        said = check_proof(proof, wanted)
    except ProofFails as error:
        raise AuditFailed(f"nothing is proved: {error}") from error
    _write(proof, out)
    typer.echo(said, err=True)


def check(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The proof.", show_default=False)],
    market: Annotated[
        str, typer.Option("--market", metavar="0x…", help="The address of whom it accuses.")
    ],
) -> None:
    """Check a proof against a market: needs the file and the market's address, nothing else.

    Says what is proved. Ends with an error, and says why, when the proof does not hold.
    """
    proof = read_file(path, Proof, "FILE")
    try:
        typer.echo(check_proof(proof, address_in(market, "--market")))
    except ProofFails as error:
        raise AuditFailed(f"nothing is proved: {error}") from error


def _digest(text: str) -> Digest:
    try:
        return Digest.parse(text)
    except ValueError as error:
        raise SettingsInvalid(f"--bid: {error}") from error


def _write(proof: Proof, out: Path | None) -> None:
    if out is None:
        typer.echo(to_json(proof).decode())
        return
    try:
        out.write_bytes(to_json(proof) + b"\n")
    except OSError as error:
        raise SettingsInvalid(f"--out: {out}: {error.strerror}") from error
