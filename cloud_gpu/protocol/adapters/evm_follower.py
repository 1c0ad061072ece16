"""Follows LeaseBook's logs: every fact once, in order, taken back when its block is replaced.

Nodes do not tell of removed logs reliably, so the follower keeps block hashes, compares parents,
and rewinds to the newest block that both branches share. Blocking; `poll` does one step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import structlog

from cloud_gpu.protocol.adapters.evm_abi import lease_book
from cloud_gpu.protocol.adapters.evm_events import TABLE_EVENTS, Log, LogDecoder
from cloud_gpu.protocol.adapters.evm_outbox import Outbox
from cloud_gpu.protocol.adapters.evm_rpc import Request, Rpc, RpcError, octets, quantity, whole
from cloud_gpu.protocol.calls import ChainCall
from cloud_gpu.protocol.chain_events import ChainAdvanced, ChainEvent, ChainReorganised
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.errors import ChainUnavailable
from cloud_gpu.protocol.values import Digest

_EVERY_HEADER: Final = 64
"""Up to this many new blocks, all headers are read and their parents compared."""

_BEHIND_POLLS: Final = 25
"""A head below ours may be a second, slower node behind one address; so often it is no accident."""


class Block(msgspec.Struct, frozen=True):
    """A header's part that matters here."""

    number: int
    hash: Digest
    parent: Digest
    at: int


class Raced(ChainUnavailable):
    """The chain moved between two questions; the next poll asks again."""


class Follower:
    """One reader of one LeaseBook.

    Starts at the deployment's first block, or after `resume_after`: a block whose events the
    caller has taken in before (see `EvmChain`).
    """

    def __init__(
        self,
        rpc: Rpc,
        deployment: Deployment,
        outbox: Outbox,
        *,
        resume_after: int | None = None,
        blocks_at_once: int = 2_000,
        on_reorganised: Callable[[int], None] = lambda _block: None,
    ) -> None:
        self._rpc, self._deployment, self._outbox = rpc, deployment, outbox
        self._on_reorganised = on_reorganised
        self._decoder = LogDecoder(deployment, self._call_of)
        self._untold: list[ChainEvent] = []
        self._head: Digest | None = None
        self._last: Block | None = None
        self._resume_after, self._blocks_at_once = resume_after, blocks_at_once
        self._behind = 0
        self.is_at_head = False
        """Whether the last poll reached the newest confirmed block."""
        self._log = structlog.get_logger(follower=str(deployment.lease_book))

    def poll(self) -> list[ChainEvent]:
        """What happened since the last poll; empty when nothing did.

        Raises ChainUnavailable; nothing is lost, poll again.
        """
        self._step()
        told, self._untold = self._untold, []
        return told

    def _step(self) -> None:
        head = self._header(self._rpc.call("eth_getBlockByNumber", "latest", False))
        if head.hash == self._head:
            return
        target = head.number - self._deployment.confirmations
        if self._last is None:
            if target < self._deployment.first_block - 1:
                return
            self._last = self._start(target)
        self._last = last = self._rewound(self._last, head, target)
        upto = min(target, last.number + self._blocks_at_once)
        if upto > last.number:
            self._read(last, upto, head)
        self.is_at_head = upto >= target
        if self.is_at_head:
            self._head = head.hash

    # Where to begin.

    def _start(self, target: int) -> Block:
        """The block after which events are told; the tables are learnt up to it."""
        before_first = max(0, self._deployment.first_block - 1)
        resume = self._resume_after
        if resume is None or resume < before_first:
            return self._block(before_first)
        ancestor = self._common_ancestor(min(resume, target))
        self._learn_tables(ancestor.number)
        self._on_reorganised(ancestor.number)
        if ancestor.number < resume:
            self._log.warning("reorganised_while_away", told=resume, ancestor=ancestor.number)
        # Events of later blocks may have been taken in before the stop: they are told again.
        self._untold.append(ChainReorganised(block=ancestor.number))
        return ancestor

    def _learn_tables(self, upto: int) -> None:
        topics = [["0x" + lease_book().topic(name).hex() for name in TABLE_EVENTS]]
        first = self._deployment.first_block
        for start in range(first, upto + 1, self._blocks_at_once):
            end = min(upto, start + self._blocks_at_once - 1)
            for log in self._logs(self._rpc.call(*_spread(self._logs_request(start, end, topics)))):
                self._decoder.decode(log, 0)

    # Reorganisations.

    def _rewound(self, last: Block, head: Block, target: int) -> Block:
        """`last` while it is on the chain, else the common ancestor, and that is told."""
        if head.number == last.number + 1 and head.parent == last.hash:
            return last
        if head.number < last.number:
            here = self._header_or_none(last.number)
            if here is None and self._block(head.number).hash == self._hash_of(head.number):
                self._behind += 1
                if self._behind < _BEHIND_POLLS:
                    raise Raced(f"the node is at block {head.number}, behind {last.number}")
        else:
            here = self._block(last.number)
        self._behind = 0
        if here is not None and here.hash == last.hash:
            return last
        ancestor = self._common_ancestor(min(last.number, max(target, 0)))
        self._log.warning("reorganised", from_block=last.number, ancestor=ancestor.number)
        self._outbox.remember_blocks([(ancestor.number, ancestor.hash)], above=ancestor.number)
        self._on_reorganised(ancestor.number)
        self._untold.append(ChainReorganised(block=ancestor.number))
        return ancestor

    def _common_ancestor(self, upto: int) -> Block:
        """The newest block told of that the chain still has; else the one before the first."""
        for number, known in self._outbox.known_blocks(upto):
            found = self._header_or_none(number)
            if found is not None and found.hash == known:
                return found
        self._require_contract()
        return self._block(max(0, self._deployment.first_block - 1))

    def _hash_of(self, number: int) -> Digest | None:
        return next((h for n, h in self._outbox.known_blocks(number) if n == number), None)

    def _require_contract(self) -> None:
        code = self._rpc.call("eth_getCode", str(self._deployment.lease_book), "latest")
        if not octets(code):
            raise ContractGone(
                f"no LeaseBook at {self._deployment.lease_book} on the chain at {self._rpc.shown}:"
                " it was reset, or is another chain. Deploy again, or correct `rpc`"
            )

    # New blocks.

    def _read(self, last: Block, upto: int, head: Block) -> None:
        first = last.number + 1
        every = upto - last.number <= _EVERY_HEADER
        numbers = list(range(first, upto + 1)) if every else [first, upto]
        known = {head.number: head}
        wanted = [number for number in numbers if number not in known]
        requests = [*map(_header_request, wanted), self._logs_request(first, upto, None)]
        *headers, raw_logs = self._rpc.all(requests)
        blocks = known | {n: self._header(h) for n, h in zip(wanted, headers, strict=True)}
        if blocks[first].parent != last.hash:
            raise Raced("the chain was reorganised while it was read")
        if every:
            for number in numbers[1:]:
                if blocks[number].parent != blocks[number - 1].hash:
                    raise Raced("the chain was reorganised while it was read")
        logs = self._logs(raw_logs)
        self._add_headers(blocks, [log.block for log in logs])
        for log in logs:
            if log.block_hash != blocks[log.block].hash:
                raise Raced("the chain was reorganised while it was read")
        if not every and self._block(upto).hash != blocks[upto].hash:
            raise Raced("the chain was reorganised while it was read")
        told = self._events_of(logs, blocks)
        newest = blocks[upto]
        self._outbox.remember_blocks(
            [(b.number, b.hash) for b in blocks.values() if b.number <= upto], above=last.number
        )
        self._last = newest
        self._untold += [*told, ChainAdvanced(block=newest.number, at=newest.at)]

    def _events_of(self, logs: Sequence[Log], blocks: Mapping[int, Block]) -> list[ChainEvent]:
        """With ChainAdvanced between blocks, so that a reader can take back one without another."""
        told: list[ChainEvent] = []
        for place, log in enumerate(logs):
            before = logs[place - 1].block if place else log.block
            if log.block != before:
                told.append(ChainAdvanced(block=before, at=blocks[before].at))
            event = self._decoder.decode(log, blocks[log.block].at)
            if event is not None:
                told.append(event)
        return told

    def _add_headers(self, blocks: dict[int, Block], numbers: Sequence[int]) -> None:
        missing = sorted(set(numbers) - set(blocks))
        found = self._rpc.all([_header_request(number) for number in missing])
        blocks.update({n: self._header(h) for n, h in zip(missing, found, strict=True)})

    # The node's answers.

    def _logs_request(self, first: int, upto: int, topics: Sequence[Any] | None) -> Request:
        wanted: dict[str, Any] = {
            "fromBlock": quantity(first),
            "toBlock": quantity(upto),
            "address": [str(address) for address in self._deployment.contracts],
        }
        if topics is not None:
            wanted["topics"] = topics
        return "eth_getLogs", (wanted,)

    def _logs(self, answer: Any) -> list[Log]:
        if not isinstance(answer, list):
            raise ChainUnavailable(f"the EVM node answered {answer!r} for logs"[:200])
        logs = [
            Log(
                block=whole(found["blockNumber"]),
                block_hash=Digest(octets(found["blockHash"])),
                index=whole(found["logIndex"]),
                transaction=Digest(octets(found["transactionHash"])),
                topics=tuple(octets(topic) for topic in found["topics"]),
                payload=octets(found["data"]),
            )
            for found in answer
        ]
        return sorted(logs, key=lambda log: (log.block, log.index))

    def _header(self, answer: Any) -> Block:
        if not isinstance(answer, Mapping):
            raise Raced("the EVM node does not have a block that it had")
        return Block(
            number=whole(answer["number"]),
            hash=Digest(octets(answer["hash"])),
            parent=Digest(octets(answer["parentHash"])),
            at=whole(answer["timestamp"]),
        )

    def _block(self, number: int) -> Block:
        return self._header(self._rpc.call(*_spread(_header_request(number))))

    def _header_or_none(self, number: int) -> Block | None:
        answer = self._rpc.batch([_header_request(number)])[0]
        if answer is None or isinstance(answer, RpcError):
            return None
        return self._header(answer)

    def _call_of(self, transaction: Digest) -> ChainCall | None:
        return self._outbox.call_of(transaction)


class ContractGone(ChainUnavailable):
    """The chain answers, and holds no LeaseBook where the deployment says: waiting cannot help."""


def _header_request(number: int) -> Request:
    return "eth_getBlockByNumber", (quantity(number), False)


def _spread(request: Request) -> tuple[Any, ...]:
    method, params = request
    return (method, *params)
