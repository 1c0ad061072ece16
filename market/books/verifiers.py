"""Whether verified leases may be opened: not while those who would audit them are silent, nor
where nobody else could repeat the work.
"""

from __future__ import annotations

from cloud_gpu.protocol.audit_messages import SignedVerifierNotice
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.identity import NoDelegates
from cloud_gpu.protocol.signing import verify_statement
from cloud_gpu.protocol.values import Address
from market.books.ledger import Ledger
from market.rules import MarketRules

_STEPS = 10
"""A heartbeat is worth an event only if it is newer by a tenth of what makes one too old."""


def owners_of(gpu_class: GpuClass, ledger: Ledger) -> int:
    """How many providers have a machine of this class that is not leaving."""
    products = {row.id for row in ledger.products.values() if row.gpu_class == gpu_class}
    return len(
        {
            machine.provider
            for machine, row in ledger.machines.items()
            if row.product in products and not row.is_leaving
        }
    )


class Verifiers:
    """When each of the deployment's verifiers was last heard."""

    def __init__(self) -> None:
        self._heard: dict[Address, int] = {}

    def is_news(self, notice: SignedVerifierNotice, rules: MarketRules, at: int) -> bool:
        """Whether a notice says more than what is known; `at` in Unix seconds.

        False: it is none of the deployment's verifiers, not signed by it, expired, or hardly newer.
        """
        body = notice.body
        newer_s = body.at - self._heard.get(body.verifier, 0)
        if body.verifier not in rules.verifiers or newer_s < rules.heartbeat_age_s // _STEPS:
            return False
        refused = verify_statement(
            notice, rules.domain, account=body.verifier, keys=NoDelegates(), role=None, at=at
        )
        return refused is None

    def hear(self, notice: SignedVerifierNotice) -> None:
        """A notice that is news."""
        self._heard[notice.body.verifier] = notice.body.at

    def are_alive(self, rules: MarketRules, at: int) -> bool:
        """Whether every verifier was heard lately: a conviction needs them together."""
        ages = [at - self._heard.get(verifier, 0) for verifier in rules.verifiers]
        return bool(ages) and max(ages) <= rules.heartbeat_age_s

    def rows(self) -> list[list[object]]:
        """Everything in it in one fixed order, for a digest of the state."""
        return [[str(verifier), at] for verifier, at in sorted(self._heard.items())]
