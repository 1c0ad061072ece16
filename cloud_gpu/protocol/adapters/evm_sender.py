"""Brings the outbox of one key to the chain: one sender a key, its nonces counted in the outbox.

Blocking and without a loop of its own: `turn` does what can be done now. Every signed transaction
is on disk before it is sent, so a killed process sends it again under the same nonce, and what
was sent twice is mined once.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from cloud_gpu.protocol.adapters.evm_abi import decode_revert
from cloud_gpu.protocol.adapters.evm_calls import calldata, destination, spare_gas
from cloud_gpu.protocol.adapters.evm_outbox import Attempt, Outbox, QueuedCall, SentCall
from cloud_gpu.protocol.adapters.evm_rpc import Rpc, RpcError, quantity, whole
from cloud_gpu.protocol.adapters.evm_transaction import Fees, SignedTransaction, Transaction
from cloud_gpu.protocol.calls import ChainCall
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.errors import ChainUnavailable
from cloud_gpu.protocol.identity import Signer
from cloud_gpu.protocol.ports import Clock
from cloud_gpu.protocol.values import Digest

IN_FLIGHT_MAX: Final = 16
"""Unconfirmed transactions of one key; nodes keep no more than 16 to 64 of a sender."""

GAS_MAX: Final = 2**24
"""EIP-7825: no transaction may have more."""

_EARLY: Final = (
    "LeaseBook_TooEarly",
    "Verification_TooEarly",
    "Futures_TooEarly",
    "GroupBuy_TooEarly",
)
_EARLY_WAIT_S: Final = 120
"""A call that becomes possible this soon waits for the chain's clock instead of failing."""

_REFUSED_S_MAX: Final = 60
"""A node that refuses a call for so long, without saying why, will not take it."""

_REFUSED_WAIT_MS: Final = 1_000

_OUTBID_MOST: Final = 10
"""Offering more than ten times the going price cannot be what helps."""

_INTRINSIC_GAS: Final = 21_000

# What nodes say; they agree neither on words nor on codes.
_KNOWN: Final = ("already known", "already imported", "alreadyknown")
_NONCE_TAKEN: Final = ("nonce too low", "underpriced", "nonce has already been used")
_POOR: Final = ("insufficient funds", "insufficient balance")
_IN_TIME: Final = ("less than block base fee", "fee too low")
"""A spike of the base fee: the offer is raised when the attempt's time is up."""


@dataclass
class _Notes:
    """What the sender remembers of a call between turns; a restart may forget it. Unix ms."""

    not_before: int = 0
    refused_since: int | None = None
    looked_at: int = 0
    in_block: bool = False


class Sender:
    """Sends one key's calls. One thread takes turns; the follower's may tell it."""

    def __init__(
        self,
        rpc: Rpc,
        deployment: Deployment,
        key: Signer,
        outbox: Outbox,
        clock: Clock,
        *,
        bump_after_s: float = 30.0,
    ) -> None:
        self._rpc, self._deployment, self._key = rpc, deployment, key
        self._outbox, self._clock = outbox, clock
        self._bump_after_ms = int(bump_after_s * 1000)
        self._told = threading.Lock()
        self._told_upto: int | None = None
        self._branch, self._resent_on = 0, -1
        self._notes: defaultdict[int, _Notes] = defaultdict(_Notes)
        self._bumped_at = 0
        self._log = structlog.get_logger(sender=str(key.address))

    def chain_was_told_upto(self, block: int) -> None:
        """The follower has delivered the events of this block: calls in it are over."""
        with self._told:
            self._told_upto = block

    def chain_was_reorganised_after(self, block: int) -> None:
        """Blocks above were replaced: what they held of ours is sent again."""
        with self._told:
            self._told_upto = block
            self._branch += 1
            reopened = self._outbox.reopen_after(block)
        if reopened:
            self._log.warning("calls_reopened", after_block=block, calls=reopened)

    def turn(self) -> bool:
        """Advance everything that can; True while calls are under way or wait.

        Raises ChainUnavailable; nothing is lost, call again.
        """
        try:
            sent = self._follow_up(self._outbox.sent())
            for waiting in self._outbox.queued(max(0, IN_FLIGHT_MAX - len(sent))):
                if self._begin(waiting, sent):
                    sent = self._outbox.sent()
        except ChainUnavailable:
            self._resent_on = -1  # what was signed may not have left
            raise
        waits = self._outbox.queued(IN_FLIGHT_MAX)
        known = {call.id for call in sent} | {call.id for call in waits}
        for forgotten in set(self._notes) - known:
            del self._notes[forgotten]
        return bool(known)

    # Calls under way.

    def _follow_up(self, sent: list[SentCall]) -> list[SentCall]:
        branch = self._branch
        receipts = self._receipts(sent)
        open_calls = [call for call in sent if not self._ended(call, receipts, branch)]
        missing = [c for c in open_calls if not any(a.hash in receipts for a in c.attempts)]
        # Whose block was replaced may be in no pool any more.
        lost = [c for c in missing if branch != self._resent_on or self._notes[c.id].in_block]
        for call in open_calls:
            self._notes[call.id].in_block = call not in missing
        for call in lost:
            self._post_again(call, call.attempts[-1].raw)
        self._resent_on = branch
        if missing and not lost:
            self._hurry(missing)
        return open_calls

    def _receipts(self, sent: Sequence[SentCall]) -> dict[Digest, Mapping[str, Any]]:
        hashes = [attempt.hash for call in sent for attempt in call.attempts]
        if not hashes:
            return {}
        found = self._rpc.all([("eth_getTransactionReceipt", (str(h),)) for h in hashes])
        return {h: receipt for h, receipt in zip(hashes, found, strict=True) if receipt}

    def _ended(
        self, call: SentCall, receipts: Mapping[Digest, Mapping[str, Any]], branch: int
    ) -> bool:
        """Settle a call whose block the follower has told of; before that it may still move."""
        for attempt in call.attempts:
            receipt = receipts.get(attempt.hash)
            if receipt is None:
                continue
            block, gas_used = whole(receipt["blockNumber"]), whole(receipt["gasUsed"])
            error = None
            if whole(receipt["status"]) != 1:
                error = self._why_reverted(call.call, attempt, block, gas_used)
            with self._told:  # or a reorganisation could come between the look and the note
                early = self._told_upto is not None and block > self._told_upto
                if early or branch != self._branch:
                    return False
                if error is None:
                    self._outbox.done(call.id, block, gas_used)
                else:
                    self._fail(call.id, call.call, error, block, gas_used)
            return True
        return False

    def _why_reverted(self, call: ChainCall, attempt: Attempt, block: int, gas_used: int) -> str:
        """Run it again: in its block's time and state, then on the state before, if kept."""
        if gas_used == attempt.gas:
            return f"OutOfGas(limit={attempt.gas})"
        for at in (block, block - 1):
            try:
                self._rpc.call("eth_call", self._request(call), quantity(at))
            except RpcError as error:
                return str(decode_revert(error.data, error.message))
        return "Reverted(text=it passes before its block and after: it lost a race inside it)"

    def _hurry(self, missing: Sequence[SentCall]) -> None:
        """Free what was not mined for long: a nonce lost, a gap before it, a pool's memory, a fee.

        Without a new block since the last look there is nothing to outbid.
        """
        now = self._clock.now()
        stuck = [c for c in missing if now - self._looked_at(c) > self._bump_after_ms]
        if not stuck:
            return
        for call in stuck:
            self._notes[call.id].looked_at = now
        mined = whole(self._rpc.call("eth_getTransactionCount", str(self._key.address), "latest"))
        self._fill_gaps(mined, stuck)
        head, fees = self._head_and_fees()
        grown, self._bumped_at = head > self._bumped_at, head
        for call in stuck:
            last = call.attempts[-1]
            bumped = last.fees.bumped(fees)
            if call.nonce < mined:
                self._release_if_taken(call.id)
            elif grown and bumped.most <= _OUTBID_MOST * fees.most:
                signed = self._sign(call.call, call.nonce, last.gas, bumped)
                self._outbox.attempt(call.id, signed, now)
                self._log.info("fee_bumped", nonce=call.nonce, most_wei=bumped.most)
                self._post_again(call, signed.raw)
            else:
                self._post_again(call, last.raw)

    def _looked_at(self, call: SentCall) -> int:
        return max(call.attempts[-1].sent_at, self._notes[call.id].looked_at)

    def _fill_gaps(self, mined: int, stuck: Sequence[SentCall]) -> None:
        """A nonce that none of our calls holds stalls all behind it: an empty transfer fills it."""
        held = {call.nonce for call in self._outbox.sent()}
        for nonce in range(mined, max(call.nonce for call in stuck)):
            if nonce in held:
                continue
            self._log.warning("nonce_gap_filled", nonce=nonce)
            filler = Transaction(
                chain_id=self._deployment.chain_id,
                nonce=nonce,
                to=self._key.address,
                payload=b"",
                gas=_INTRINSIC_GAS,
                fees=self._head_and_fees()[1],
            ).signed(self._key)
            try:
                self._rpc.call("eth_sendRawTransaction", "0x" + filler.raw.hex())
            except RpcError as error:  # another sender of this key has it: then there is no gap
                self._log.info("nonce_gap_not_filled", nonce=nonce, said=error.message)

    # Calls that wait.

    def _begin(self, waiting: QueuedCall, sent: Sequence[SentCall]) -> bool:
        """Sign and send one call; False when it has to wait."""
        if self._clock.now() < self._notes[waiting.id].not_before:
            return False
        address = str(self._key.address)
        gas, count, block, tip = self._rpc.batch(
            [
                ("eth_estimateGas", (self._request(waiting.call), "pending")),
                ("eth_getTransactionCount", (address, "pending")),
                ("eth_getBlockByNumber", ("latest", False)),
                ("eth_maxPriorityFeePerGas", ()),
            ]
        )
        if isinstance(gas, RpcError):
            earlier = any(call.id < waiting.id for call in sent)
            return self._not_estimated(waiting, gas, block, after_others=earlier)
        for found in (count, block):
            if isinstance(found, RpcError):
                raise ChainUnavailable(str(found)) from found
        nonce = max([whole(count), *(call.nonce + 1 for call in sent)])
        limit = min(GAS_MAX, whole(gas) * 13 // 10 + spare_gas(waiting.call))
        signed = self._sign(waiting.call, nonce, limit, fees_of(block, tip))
        self._outbox.attempt(waiting.id, signed, self._clock.now())
        self._post(waiting, signed.raw)
        return True

    def _not_estimated(
        self, waiting: QueuedCall, error: RpcError, block: Any, *, after_others: bool
    ) -> bool:
        if error.says(*_POOR):
            self._fail(waiting.id, waiting.call, self._poor(error))
            return True
        if error.data is None and not error.says("revert"):
            return self._refused(waiting, error)
        revert = decode_revert(error.data, error.message)
        if revert.name in _EARLY and isinstance(block, Mapping):
            wait_s = int(revert.arguments["opensAt"]) - whole(block["timestamp"])
            if wait_s <= _EARLY_WAIT_S:
                self._notes[waiting.id].not_before = self._clock.now() + max(200, wait_s * 1000)
                return False
        if after_others:
            return False  # what is under way may be what it needs
        self._fail(waiting.id, waiting.call, str(revert))
        return True

    def _refused(self, waiting: QueuedCall, error: RpcError) -> bool:
        """The node will not have a call and does not say why: again, but not for ever."""
        now, notes = self._clock.now(), self._notes[waiting.id]
        if notes.refused_since is None:
            notes.refused_since = now
        if now - notes.refused_since > _REFUSED_S_MAX * 1000:
            self._fail(waiting.id, waiting.call, f"NotSent(text={error})")
            return True
        notes.not_before = now + _REFUSED_WAIT_MS
        self._log.warning("call_refused", call=type(waiting.call).__name__, error=str(error))
        return False

    # Posting.

    def _post(self, waiting: QueuedCall, raw: bytes) -> None:
        """The first time; what cannot go out gives its nonce back."""
        error = self._posted(raw)
        if error is None or error.says(*_IN_TIME):
            return
        if error.says(*_NONCE_TAKEN):
            # Ours after all, or another sender's; then it is signed again under the next nonce.
            self._release_if_taken(waiting.id)
        elif error.says(*_POOR):
            self._fail(waiting.id, waiting.call, self._poor(error))
        else:
            self._outbox.requeue(waiting.id)
            self._refused(waiting, error)

    def _post_again(self, call: SentCall, raw: bytes) -> None:
        """Later: the node may have an attempt already, so nothing that it says ends the call."""
        error = self._posted(raw)
        if error is None:
            return
        self._log.info("call_not_posted_again", nonce=call.nonce, said=error.message)
        if error.says(*_NONCE_TAKEN):
            self._release_if_taken(call.id)

    def _posted(self, raw: bytes) -> RpcError | None:
        try:
            self._rpc.call("eth_sendRawTransaction", "0x" + raw.hex())
        except RpcError as error:
            return None if error.says(*_KNOWN) else error
        return None

    def _release_if_taken(self, call_id: int) -> None:
        """Sign a call anew whose nonce is spent, unless an attempt of ours is what spent it."""
        call = next(c for c in self._outbox.sent() if c.id == call_id)
        hashes = [(str(attempt.hash),) for attempt in call.attempts]
        known = self._rpc.all([("eth_getTransactionByHash", h) for h in hashes])
        if not any(known):
            self._log.warning("nonce_taken", nonce=call.nonce, call=type(call.call).__name__)
            self._outbox.requeue(call_id)

    # Small things.

    def _fail(
        self, call_id: int, call: ChainCall, error: str, block: int | None = None, gas_used: int = 0
    ) -> None:
        self._log.warning("call_failed", call=type(call).__name__, error=error)
        self._outbox.failing(call_id, error, block, gas_used)

    def _poor(self, error: RpcError) -> str:
        wei = whole(self._rpc.call("eth_getBalance", str(self._key.address), "latest"))
        return (
            f"InsufficientFunds(key={self._key.address}, wei={wei}): it cannot pay for gas; send it"
            f" native currency ({error.message})"
        )

    def _head_and_fees(self) -> tuple[int, Fees]:
        block, tip = self._rpc.batch(
            [("eth_getBlockByNumber", ("latest", False)), ("eth_maxPriorityFeePerGas", ())]
        )
        if isinstance(block, RpcError):
            raise ChainUnavailable(str(block)) from block
        return whole(block["number"]), fees_of(block, tip)

    def _request(self, call: ChainCall) -> dict[str, str]:
        return {
            "from": str(self._key.address),
            "to": str(destination(call, self._deployment)),
            "data": "0x" + calldata(call).hex(),
        }

    def _sign(self, call: ChainCall, nonce: int, gas: int, fees: Fees) -> SignedTransaction:
        return Transaction(
            chain_id=self._deployment.chain_id,
            nonce=nonce,
            to=destination(call, self._deployment),
            payload=calldata(call),
            gas=gas,
            fees=fees,
        ).signed(self._key)


def fees_of(block: Mapping[str, Any], tip: Any) -> Fees:
    """Twice the base fee survives six full blocks. A node without a tip to suggest gets 1 gwei."""
    if block.get("baseFeePerGas") is None:
        raise ChainUnavailable("the chain has no base fee: EIP-1559 is needed")
    offered = 10**9 if isinstance(tip, RpcError) else whole(tip)
    return Fees(most=2 * whole(block["baseFeePerGas"]) + offered, tip=offered)
