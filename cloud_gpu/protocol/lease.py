"""A lease: the right to one machine for a window. Its states are LeaseBook's, as one table.

Times on chain are Unix seconds. Who may call what is the contract's; here is what follows.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag, StrEnum
from types import MappingProxyType
from typing import Final

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address, Digest, Value, keccak256


class MachineKey(Value, frozen=True, kw_only=True, order=True):
    """A rentable slice: the provider's account and its index there."""

    provider: Address
    index: int

    @property
    def word(self) -> Digest:
        """Provider in the high 160 bits, index in the low 32: bytes32(provider << 96 | index)."""
        return Digest(self.provider.raw + self.index.to_bytes(12, "big"))

    def __str__(self) -> str:
        return f"{self.provider}/{self.index}"

    @classmethod
    def from_word(cls, word: bytes) -> MachineKey:
        """The inverse of `word`."""
        return cls(provider=Address(word[:20]), index=int.from_bytes(word[20:], "big"))


class LeaseKey(Value, frozen=True, kw_only=True, order=True):
    """One lease of one machine, everywhere: on chain, in vouchers, as a running job's epoch."""

    provider: Address
    index: int
    seq: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < 2**32:
            raise ValueError(f"lease.index is 0 to {2**32 - 1}, found {self.index}")
        if not 0 <= self.seq <= limits.SEQ_MAX:
            raise ValueError(f"lease.seq is 0 to {limits.SEQ_MAX}, found {self.seq}")

    @classmethod
    def parse(cls, text: str) -> LeaseKey:
        """Read what `str` writes: "0x…/3/1". Raises ValueError."""
        provider, *numbers = text.strip().split("/")
        if len(numbers) != 2 or not all(n.isascii() and n.isdigit() for n in numbers):
            raise ValueError(
                f'a lease is written like "0x…/3/1" (provider, machine, number), found {text!r}'
            )
        return cls(provider=Address.parse(provider), index=int(numbers[0]), seq=int(numbers[1]))

    @property
    def machine(self) -> MachineKey:
        """The machine it is of."""
        return MachineKey(provider=self.provider, index=self.index)

    @property
    def id(self) -> Digest:
        """keccak256(machineKey, seq), as the contract computes it."""
        return keccak256(self.machine.word.raw + self.seq.to_bytes(32, "big"))

    def __str__(self) -> str:
        return f"{self.provider}/{self.index}/{self.seq}"

    @property
    def short(self) -> str:
        """For people and for container names: the first hex digits of the id."""
        return self.id.raw.hex()[:10]


class MachineStatus(IntEnum):
    """The machine word's status; FUNDED to STOPPED are those of its lease."""

    NONE = 0
    FREE = 1
    FUNDED = 2
    ACTIVE = 3
    STOPPED = 4
    PAUSED = 5
    RETIRING = 6


class LeaseEndReason(IntEnum):
    """Why a lease ended: one byte, the same in Solidity, Python, CLI and API."""

    END_OF_TIME = 0
    STOPPED = 1
    RELEASED = 2
    NOTICE = 3
    NO_VOUCHERS = 4
    HEALTH = 5
    EXPIRED = 6
    BUYER_NO_SHOW = 7
    PROVIDER_NO_SHOW = 8
    RELEASED_UNSTARTED = 9

    @property
    def started(self) -> bool:
        """Whether the lease had begun."""
        return self < LeaseEndReason.BUYER_NO_SHOW

    @property
    def text(self) -> str:
        """In words."""
        return self.name.lower().replace("_", " ")


class LeaseState(StrEnum):
    """A lease's life as every party follows it on chain."""

    FUNDED = "funded"
    ACTIVE = "active"
    STOPPED = "stopped"
    CLOSED = "closed"


class LeaseStep(StrEnum):
    """What happens to a lease."""

    BEGIN = "begin"
    SETTLE = "settle"
    STOP = "stop"
    CLOSE = "close"


LEASE_TABLE: Final = MappingProxyType(
    {
        (LeaseState.FUNDED, LeaseStep.BEGIN): LeaseState.ACTIVE,
        (LeaseState.FUNDED, LeaseStep.CLOSE): LeaseState.CLOSED,
        (LeaseState.ACTIVE, LeaseStep.SETTLE): LeaseState.ACTIVE,
        (LeaseState.ACTIVE, LeaseStep.STOP): LeaseState.STOPPED,
        (LeaseState.ACTIVE, LeaseStep.CLOSE): LeaseState.CLOSED,
        (LeaseState.STOPPED, LeaseStep.SETTLE): LeaseState.STOPPED,
        (LeaseState.STOPPED, LeaseStep.CLOSE): LeaseState.CLOSED,
    }
)
"""(state, step) -> state; a missing entry is refused."""


def next_state(state: LeaseState, step: LeaseStep) -> LeaseState | None:
    """The state after a step, or None when the step is not allowed there."""
    return LEASE_TABLE.get((state, step))


class LeaseFlags(IntFlag):
    """What was agreed when a lease opened; bit values are the contract's."""

    INTERRUPTIBLE = 1
    VERIFIED = 2
    """Pay is held until results were audited."""


class LeaseTerms(Value, frozen=True, kw_only=True):
    """What was fixed when a lease opened."""

    key: LeaseKey
    buyer: Address
    cap: TokenAmount
    duration: int
    """Seconds."""
    start_deadline: int
    """Unix seconds: past it anyone may refund the lease unless it began."""
    market_id: int
    opened_at: int
    flags: int = 0
    """See `LeaseFlags`."""

    @property
    def is_interruptible(self) -> bool:
        """Whether its provider may end it after notice."""
        return bool(self.flags & LeaseFlags.INTERRUPTIBLE)

    @property
    def is_verified(self) -> bool:
        """Whether its pay is held until results were audited."""
        return bool(self.flags & LeaseFlags.VERIFIED)

    def ends_at(self, started_at: int) -> int:
        """Unix seconds."""
        return started_at + self.duration


class LeaseReport(Value, frozen=True, kw_only=True):
    """How far a lease has come, as somebody who follows the chain tells it."""

    terms: LeaseTerms
    bid: Digest
    state: LeaseState
    started_at: int = 0
    """Unix seconds; 0: not yet."""
    paid: TokenAmount
    """To the provider's side so far, fee included."""
    reason: LeaseEndReason | None = None


class Windows(Value, frozen=True, kw_only=True):
    """The contract's time-outs, constructor parameters with hard maxima; seconds."""

    start: int
    claim: int
    retire: int
    no_show: int = limits.NO_SHOW_S

    def __post_init__(self) -> None:
        bounds = (
            ("start", self.start, 1, limits.START_WINDOW_S_MAX),
            ("claim", self.claim, 1, limits.CLAIM_WINDOW_S_MAX),
            ("retire", self.retire, 1, limits.RETIRE_DELAY_S_MAX),
            ("no_show", self.no_show, 0, limits.NO_SHOW_S_MAX),
        )
        for name, found, low, high in bounds:
            if not low <= found <= high:
                raise ValueError(f"windows.{name} is {low} to {high} s, found {found}")
