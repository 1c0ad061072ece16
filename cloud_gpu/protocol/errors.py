"""What can go wrong, in three kinds: a reject is a value, a failed outside world an exception,
our own mistake an assertion.

`RejectReason` is shared by the market, the node, the contracts (skip codes) and the SDK; the
exceptions are raised by adapters and façades only, never by a party.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from cloud_gpu.protocol.values import Value


class RejectReason(StrEnum):
    """Why a message, an order or an entry of a batch was refused."""

    MALFORMED = "malformed"
    TOO_LARGE = "too-large"
    RATE_LIMITED = "rate-limited"
    BAD_SIGNATURE = "bad-signature"
    KEY_NOT_AUTHORISED = "key-not-authorised"
    EXPIRED = "expired"
    DUPLICATE = "duplicate"
    UNKNOWN_PRODUCT = "unknown-product"
    UNKNOWN_MACHINE = "unknown-machine"
    UNKNOWN_ACCOUNT = "unknown-account"
    UNKNOWN_LEASE = "unknown-lease"
    UNKNOWN_JOB = "unknown-job"
    UNKNOWN_ORDER = "unknown-order"
    UNKNOWN_ROUND = "unknown-round"
    WRONG_PRODUCT = "wrong-product"
    WRONG_COUNT = "wrong-count"
    WRONG_MATCHER = "wrong-matcher"
    WRONG_PROVIDER = "wrong-provider"
    PRICE_OUTSIDE_LIMITS = "price-outside-limits"
    DURATION_OUTSIDE_LIMITS = "duration-outside-limits"
    FEE_ABOVE_LIMIT = "fee-above-limit"
    FLAGS_DIFFER = "flags-differ"
    TERMS_DIGEST_DIFFERS = "terms-digest-differs"
    MACHINE_NOT_FREE = "machine-not-free"
    STALE_SEQUENCE = "stale-sequence"
    NONCE_USED = "nonce-used"
    ORDER_CLOSED = "order-closed"
    CASH_TOO_LOW = "cash-too-low"
    BOND_TOO_LOW = "bond-too-low"
    CAP_OUT_OF_RANGE = "cap-out-of-range"
    SELF_DEALING = "self-dealing"
    PROVIDER_BARRED = "provider-barred"
    OPENING_PAUSED = "opening-paused"
    NO_MATCH = "no-match"
    WRONG_STATE = "wrong-state"
    NOT_THE_BUYER = "not-the-buyer"
    RUNTIME_UNAVAILABLE = "runtime-unavailable"
    MARKET_STOPPING = "market-stopping"


class Rejection(Value, frozen=True, kw_only=True):
    """One refusal, with what a person needs to mend it."""

    reason: RejectReason
    field: str = ""
    """The field or limit concerned, as the sender wrote it: `bid.max_price_per_hour`."""
    found: str = ""
    needed: str = ""
    next: str = ""
    """What to do about it, one sentence."""

    def __str__(self) -> str:
        parts = [str(self.reason)]
        if self.field:
            parts.append(self.field)
        if self.found or self.needed:
            parts.append(
                f"found {self.found or 'nothing'}, needed {self.needed or 'something else'}"
            )
        text = ": ".join(parts)
        return f"{text}. {self.next}" if self.next else text


class CloudGpuError(Exception):
    """Base of every exception that leaves this package; the text says what to do."""

    exit_code: ClassVar[int] = 1
    """What a command line exits with."""


class OutsideWorldError(CloudGpuError):
    """The chain, a peer, a service or the disk failed; nothing was done by halves."""

    exit_code = 8


class ChainUnavailable(OutsideWorldError):
    """No answer, or no sensible one, from the EVM node."""


class TransactionReverted(OutsideWorldError):
    """The contract refused a transaction; `error` is the decoded custom error."""

    def __init__(self, error: str, detail: str = "") -> None:
        super().__init__(f"{error}: {detail}" if detail else error)
        self.error = error


class DeploymentDiffers(OutsideWorldError):
    """What lies on the chain is not what the deployment's file and this package say."""

    def __init__(self, field: str, found: str, needed: str) -> None:
        super().__init__(
            f"{field}: found {found}, needed {needed}. Use the package and the file that were"
            " deployed with, or deploy again"
        )
        self.field = field


class MarketUnavailable(OutsideWorldError):
    """The market's API does not answer."""


class PeerUnreachable(OutsideWorldError):
    """No connection to a peer within the time allowed."""


class RequestTimedOut(OutsideWorldError):
    """A peer took the request and did not answer in time."""


class RequestRefused(OutsideWorldError):
    """A peer answered that it will not serve the request."""


class ArtifactRejected(OutsideWorldError):
    """An artefact's bytes do not have its digest, exceed a limit, or were not authorised."""


class ContainerFailed(OutsideWorldError):
    """The runtime could not do what it was told."""


class ToolchainMissing(OutsideWorldError):
    """A program the devnet needs (anvil, node, forge) is not here and cannot be fetched."""


class StorageFailed(OutsideWorldError):
    """The disk or the database refused to keep something; it was not acknowledged."""


class SettingsInvalid(CloudGpuError):
    """A setting or key is missing or wrong; the text names the field, the rule and the fix."""

    exit_code = 3


class Rejected(CloudGpuError):
    """The market, a provider or a contract refused; `rejection` says why."""

    exit_code = 7

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(str(rejection))
        self.rejection = rejection


class NoMatch(Rejected):
    """No ask satisfies the bid; `rejection` names the blocking limit and the nearest change."""

    exit_code = 5


class FundsTooSmall(CloudGpuError):
    """The vault or the cap does not cover what was asked; amounts in base units."""

    exit_code = 6

    def __init__(self, needed: int, have: int, text: str) -> None:
        super().__init__(text)
        self.needed, self.have = needed, have


class GasTooSmall(FundsTooSmall):
    """The account's native currency does not pay for the gas; amounts in wei."""


class StartTimeout(CloudGpuError):
    """The provider was not ready by the start deadline; the lease was refunded."""

    exit_code = 10


class LeaseInterrupted(CloudGpuError):
    """The lease ended before the caller closed it; `reason` is its end reason."""

    exit_code = 10

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class RunError(CloudGpuError):
    """A command inside a lease exited with a code other than 0."""

    def __init__(self, code: int, tail: str) -> None:
        super().__init__(f"the command exited with code {code}\n{tail}".rstrip())
        self.code, self.tail = code, tail


class AuditFailed(CloudGpuError):
    """What a market published is not what follows from it; the text names the first difference."""
