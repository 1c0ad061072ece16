"""A difference: what two verifiers' verdicts on one segment mean together.

Convicts only on two verdicts of two verifiers of the deployment that say the same, word for word;
anything else is inconclusive and costs the provider the segment's price at most. Takes nothing
but checked verdicts.
"""

from __future__ import annotations

from enum import StrEnum

from cloud_gpu.protocol.audit import Verdict, VerdictResult
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.identity import NoDelegates
from cloud_gpu.protocol.signing import Signed, Verified, verify


class Ruling(StrEnum):
    """What becomes of a segment on which verdicts were given."""

    FAULT = "fault"
    """An isolated fault: the segment is accused."""
    HONEST = "honest"
    """Both found what was committed."""
    INCONCLUSIVE = "inconclusive"


def check_verdict(
    signed: Signed[Verdict], deployment: Deployment, at: int
) -> Verified[Verdict] | Rejection:
    """The verdict, when one of the deployment's verifiers signed it; `at` in Unix seconds.

    Rejects: BAD_SIGNATURE, KEY_NOT_AUTHORISED.
    """
    rejection = None
    for verifier in deployment.verifiers:
        found = verify(
            signed, deployment.verification_domain, account=verifier, keys=NoDelegates(), at=at
        )
        if isinstance(found, Verified):
            return found
        rejection = found
    return rejection or Rejection(
        reason=RejectReason.KEY_NOT_AUTHORISED, field="verdict", needed="a verifier's signature"
    )


def rule(first: Verified[Verdict], second: Verified[Verdict]) -> Ruling:
    """What two verdicts mean together; one verifier's two verdicts mean nothing."""
    if first.signer == second.signer or first.payload != second.payload:
        return Ruling.INCONCLUSIVE
    match first.payload.result:
        case VerdictResult.MISMATCH:
            return Ruling.FAULT
        case VerdictResult.MATCH:
            return Ruling.HONEST
        case VerdictResult.INCOMPARABLE:
            return Ruling.INCONCLUSIVE
