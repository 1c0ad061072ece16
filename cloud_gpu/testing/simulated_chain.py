"""A chain of blocks over a `SimulatedBook`: late inclusion, reorganisations, and followers.

Deterministic: the caller's seeded generator decides what is late and what is taken back. A
transaction that a reorganisation drops goes back to the pool, as an honest node keeps it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cloud_gpu.protocol.calls import ChainCall
from cloud_gpu.protocol.chain_events import (
    ChainAdvanced,
    ChainEvent,
    ChainReorganised,
    EntrySkipped,
    TransactionFailed,
)
from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.values import Address, Digest, keccak256
from cloud_gpu.testing.simulated_book import Revert, SimulatedBook
from cloud_gpu.testing.simulated_calls import carry_out
from cloud_gpu.testing.simulated_openings import EntryRefused


@dataclass(frozen=True, slots=True)
class Transaction:
    """A call on its way; `number` orders one sender's calls, as its nonce does."""

    sender: Address
    number: int
    call: ChainCall


@dataclass(frozen=True, slots=True)
class Block:
    """One block, and the state after it."""

    number: int
    hash: Digest
    at: int
    book: SimulatedBook
    transactions: tuple[Transaction, ...]
    events: tuple[tuple[Address | None, ChainEvent], ...]
    """With whose ears: None is everybody, an address hears of its own failures alone."""


@dataclass(slots=True)
class Follower:
    """How far one party has heard."""

    owner: Address
    heard: list[tuple[int, Digest]] = field(default_factory=list)


class SimulatedChain:
    """Blocks, a pool of transactions, and who has heard of what."""

    def __init__(self, genesis: SimulatedBook) -> None:
        self._blocks = [Block(0, keccak256(b"genesis"), genesis.now, genesis, (), ())]
        genesis_events = tuple((None, event) for event in genesis.log)
        self._blocks[0] = Block(0, self._blocks[0].hash, genesis.now, genesis, (), genesis_events)
        self._pool: list[Transaction] = []
        self._count = 0
        self._salt = 0

    @property
    def blocks(self) -> Sequence[Block]:
        """The chain as it stands, from genesis."""
        return self._blocks

    @property
    def head(self) -> Block:
        """The newest block."""
        return self._blocks[-1]

    @property
    def book(self) -> SimulatedBook:
        """The state now."""
        return self.head.book

    def submit(self, sender: Address, call: ChainCall) -> None:
        """Put a call into the pool; the same call of the same sender in flight is dropped."""
        if any(t.sender == sender and t.call == call for t in self._pool):
            return
        self._count += 1
        self._pool.append(Transaction(sender, self._count, call))

    def mine(self, at: int, is_late: Callable[[], bool] = lambda: False) -> None:
        """Make a block at `at` (Unix seconds); a late sender's calls wait for a later one."""
        late: set[Address] = set()
        taken: list[Transaction] = []
        for transaction in sorted(self._pool, key=lambda t: t.number):
            if transaction.sender in late or is_late():
                late.add(transaction.sender)  # nonces: nothing of one sender overtakes
                continue
            taken.append(transaction)
        self._pool = [t for t in self._pool if t not in taken]
        self._append(at, taken)

    def _append(self, at: int, taken: Sequence[Transaction]) -> None:
        book = self.book.copy()
        book.now, book.log = at, []
        book.audits.block = self.head.number + 1
        book.audits.block_hash = self._block_hash
        heard: list[tuple[Address | None, ChainEvent]] = []
        for transaction in taken:
            book.transaction = keccak256(
                transaction.sender.raw + transaction.number.to_bytes(8, "big")
            )
            before = book.copy()
            mark = len(book.log)
            try:
                carry_out(book, transaction.sender, transaction.call)
            except Revert as revert:
                book = before
                failed = _refusal(transaction.call, revert)
                heard.append((transaction.sender, failed))
                continue
            for event in book.log[mark:]:
                own = isinstance(event, EntrySkipped)
                heard.append((transaction.sender if own else None, event))
        book.log = []
        parent = self.head
        content = b"".join(to_json(t.call) for t in taken)
        salt = self._salt.to_bytes(8, "big") + at.to_bytes(8, "big")
        hashed = keccak256(parent.hash.raw + salt + keccak256(content).raw)
        self._blocks.append(Block(parent.number + 1, hashed, at, book, tuple(taken), tuple(heard)))

    def reorganise(self, depth: int, rng: random.Random) -> None:
        """Replace the newest blocks by as many others with the same times, less their calls."""
        depth = min(depth, len(self._blocks) - 1)
        if depth == 0:
            return
        dropped = self._blocks[-depth:]
        del self._blocks[-depth:]
        back = [t for block in dropped for t in block.transactions]
        self._salt += 1
        self._pool = sorted(back + self._pool, key=lambda t: t.number)
        for block in dropped:
            self.mine(block.at, lambda: rng.random() < 0.5)

    def news_for(self, follower: Follower) -> list[ChainEvent]:
        """What this follower has not heard yet; it has heard it afterwards."""
        news: list[ChainEvent] = []
        known = follower.heard
        if known and not self._holds(*known[-1]):
            while known and not self._holds(*known[-1]):
                known.pop()
            news.append(ChainReorganised(block=known[-1][0] if known else -1))
        start = known[-1][0] + 1 if known else 0
        for block in self._blocks[start:]:
            news += [event for owner, event in block.events if owner in (None, follower.owner)]
            known.append((block.number, block.hash))
            news.append(ChainAdvanced(block=block.number, at=block.at))
        return news

    def _block_hash(self, number: int) -> Digest | None:
        return self._blocks[number].hash if 0 <= number < len(self._blocks) else None

    def _holds(self, number: int, block_hash: Digest) -> bool:
        return number < len(self._blocks) and self._blocks[number].hash == block_hash


def _refusal(call: ChainCall, revert: Revert) -> ChainEvent:
    """As the chain's reader tells it: which entry was refused, where the contract names one."""
    if isinstance(revert, EntryRefused):
        return EntrySkipped(call=call, position=revert.position, rejection=revert.rejection)
    return TransactionFailed(call=call, error=str(revert))
