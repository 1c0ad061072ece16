"""slither on the sources that `make prove` built: each finding is explained here, or a failure.

    .tools/prove/bin/python script/run_slither.py   (in contracts)

Prints what nobody explained and what is explained but no longer found; exit 1 if there is either.
"""

from __future__ import annotations

import importlib
import json
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

# Detectors whose every finding here has the same reason.
EXCLUDED = {
    "naming-convention": "capitals for immutables, underscores for internals",
    "assembly": "packed calldata, bounded calls and hashes: each block is memory-safe and tested",
    "low-level-calls": "EIP-2935's block hashes have no ABI; whether they answered is checked",
    "timestamp": "leases count seconds; those that a proposer can choose are worth nothing",
    "calls-loop": "batches: whom they call is the book or one of its modules, fixed when deployed",
    "costly-loop": "a contract's number is counted up in storage, since each pair may fail alone",
    "reentrancy-benign": "book and modules call each other and the token, all fixed; no way back",
    "reentrancy-events": "as above: no other event can come between",
    "uninitialized-local": "starts at zero, which is meant",
    "uninitialized-state": "Ledger is one storage for three contracts; another of them writes it",
    "unused-state": "as above: another of them uses it",
    "constable-states": "as above: another of them writes it",
}
# Single findings: detector and function, and why it is none.
EXPLAINED = {
    ("incorrect-exp", "AuditLib.prove"): "^ is meant: a leaf's sibling differs in the last bit",
    ("divide-before-multiply", "Holdings._lock"): "bonds are locked in whole tokens, rounded up",
    ("divide-before-multiply", "Holdings.slashBond"): "whole tokens; the change is paid out",
    ("divide-before-multiply", "Endings._penalise"): "whole tokens; the change is paid out",
    ("divide-before-multiply", "GroupBuy.closeCampaign"): "a pledge is slices times a slice's cost",
    ("incorrect-equality", "VerificationFaults._remembered"): "compares a lease's name, no balance",
    ("reentrancy-no-eth", "PackedTrading.closePacked"): "Futures only writes down what it hears",
    ("reentrancy-no-eth", "Endings.stop"): "Futures only writes down what it hears",
    ("reentrancy-no-eth", "GroupBuy.closeCampaign"): "the book's only foreign call in it is static",
    ("unused-return", "FuturesTrading._able"): "asks whether the nonce is usable; the book uses it",
    ("unused-return", "VerificationFaults.contest"): "burns: no fee is taken",
    ("unused-return", "VerificationFaults._burnRest"): "burns: no fee is taken",
    ("unused-return", "VerificationFaults.convictSilent"): "nothing is refunded, no bounty paid",
    ("unused-return", "SigCheck.recover"): "the signer is zero whatever the error was",
    ("unused-return", "GroupBuy._requireSound"): "of three counts it needs one",
    ("write-after-write", "PackedBatch.signatureAt"): "offset and length of one slice",
}


def main() -> int:
    """Run slither and compare; the exit status."""
    findings = _findings()
    found = {(finding["check"], _place(finding["elements"][0])) for finding in findings}
    for finding in findings:
        if (finding["check"], _place(finding["elements"][0])) not in EXPLAINED:
            print(f"{finding['impact']} {finding['check']}: {finding['description']}")
    for check, place in sorted(EXPLAINED.keys() - found):
        print(f"explained, but not found: {check} in {place}. Delete its line from EXPLAINED.")
    print(f"slither: {len(findings)} findings besides {len(EXCLUDED)} excluded detectors'")
    return 0 if found == EXPLAINED.keys() else 1


def _findings() -> list[dict[str, Any]]:
    # slither 0.11 stops at `word.funded({...})`: of a bound function's declared parameters it
    # counts the receiver too, which no such call names.
    convert: Any = importlib.import_module("slither.slithir.convert")
    reorder = convert.reorder_arguments

    def without_receiver(args: list[Any], called: list[str], declared: list[list[str]]) -> Any:
        return reorder(args, called, [names[-len(called) :] for names in declared])

    convert.reorder_arguments = without_receiver
    logging.disable()  # the report has its errors too
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        options = ["--ignore-compile", "--foundry-out-directory", "out/prove"]
        options += ["--filter-paths", "node_modules", "--exclude", ",".join(EXCLUDED)]
        sys.argv = ["slither", ".", *options, "--fail-none", "--json", str(report)]
        try:
            importlib.import_module("slither.__main__").main()
        except SystemExit as end:
            if end.code:
                raise
        results = json.loads(report.read_text())
    if not results["success"]:
        raise RuntimeError(f"slither failed: {results['error']}")
    return list(results["results"]["detectors"])


def _place(element: dict[str, Any]) -> str:
    """`Contract.function` of what a finding is about."""
    parent = element["type_specific_fields"]["parent"]
    if element["type"] != "function":
        return _place(parent)
    return f"{parent['name']}.{element['name']}"


if __name__ == "__main__":
    sys.exit(main())
