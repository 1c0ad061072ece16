"""Verified leases: what a batch of 100 segments costs from commitment to end, and a slash."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks._chain import Chain, named_key
from benchmarks._leases import Leases
from benchmarks._parties import CAP, DURATION, Machine, Market, Party
from cloud_gpu.protocol.audit import (
    SEGMENTS_MAX,
    WEIGHT_ONE,
    Commit,
    Leaf,
    Results,
    Sibling,
    SumTree,
    Verdict,
    VerdictResult,
)
from cloud_gpu.protocol.calls import (
    AccuseSegment,
    CommitBatch,
    ConvictSegment,
    FinaliseBatch,
    RevealPreimage,
)
from cloud_gpu.protocol.deployment import AuditPlan, AuditWindows, VerifierAccount
from cloud_gpu.protocol.identity import KeyRole
from cloud_gpu.protocol.lease import LeaseFlags, LeaseKey
from cloud_gpu.protocol.signing import sign
from cloud_gpu.protocol.units import BasisPoints
from cloud_gpu.protocol.values import Digest, keccak256

CHALLENGE_S = 3_600
AUDIT = BasisPoints(700)
_DRAWS = 64
_VERIFIERS = (named_key("verifier 0"), named_key("verifier 1"))


def _chain_of(verifier: int) -> list[Digest]:
    """A verifier's preimages in the order in which they are revealed, the anchor before them."""
    found = [keccak256(b"seed %d" % verifier)]
    for _ in range(_DRAWS):
        found.append(keccak256(found[-1].raw))
    return found[::-1]


AUDITS = AuditPlan(
    verifiers=tuple(  # type: ignore[arg-type]
        VerifierAccount(
            signer=key.address,
            anchor=_chain_of(number)[0],
            audits=named_key(f"audits {number}").address,
        )
        for number, key in enumerate(_VERIFIERS)
    ),
    windows=AuditWindows(commit=86_400, challenge=CHALLENGE_S, hard_cap=86_400, late_slash=604_800),
)


class CommittedBatch:
    """A lease's segments, of equal weight, under one root."""

    def __init__(self, chain: Chain, lease: LeaseKey) -> None:
        self.lease = lease
        place = chain.deployment.chain_id, chain.deployment.verification
        self._leaves = [
            Leaf(
                lease=lease,
                batch_no=0,
                i=i,
                weight=WEIGHT_ONE // SEGMENTS_MAX,
                job=keccak256(b"job %d" % i),
                result=keccak256(b"result %d" % i),
                salt=keccak256(b"salt %d" % i),
            )
            for i in range(SEGMENTS_MAX)
        ]
        hashes = [leaf.hash(*place) for leaf in self._leaves]
        self._hashes = hashes
        self._tree = SumTree(
            [
                Sibling(hash=each, weight=leaf.weight)
                for each, leaf in zip(hashes, self._leaves, strict=True)
            ]
        )

    def commit(self) -> Commit:
        """What the node signs."""
        lease = self.lease
        return Commit(
            provider=lease.provider,
            index=lease.index,
            seq=lease.seq,
            batch_no=0,
            root=self._tree.root,
            n=SEGMENTS_MAX,
        )

    def accusation(self, chain: Chain, i: int) -> AccuseSegment:
        """By both verifiers."""
        lease = self.lease
        verdict = Verdict(
            provider=lease.provider,
            index=lease.index,
            seq=lease.seq,
            batch_no=0,
            i=i,
            leaf=self._hashes[i],
            result_digest=keccak256(b"something else"),
            result=VerdictResult.MISMATCH,
        )
        domain = chain.deployment.verification_domain
        first, second = (sign(verdict, domain, key) for key in _VERIFIERS)
        return AccuseSegment(
            leaf=self._leaves[i], proof=self._tree.proof(i), first=first, second=second
        )


@dataclass(frozen=True)
class BatchGas:
    """Of one batch of `SEGMENTS_MAX` segments."""

    commit: int
    reveal: int
    finalise: int


class Audited:
    """One machine whose verified leases are committed, drawn and ended."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.market = Market(chain, flags=LeaseFlags.VERIFIED, audit_bps=AUDIT)
        self._leases = Leases(self.market)
        self._provider = self.market.party("audited", KeyRole.NODE, own_key=True)
        self._buyer = self.market.party("auditing buyer", KeyRole.SESSION, own_key=True)
        self._machine: Machine = self.market.machine(self._provider, 0)
        self._batches = 0
        for number in range(2):
            chain.key(f"verifier {number}")
            self.market.member(f"audits {number}", 1)

    @property
    def parties(self) -> tuple[Party, Party]:
        """Provider and buyer."""
        return self._provider, self._buyer

    def committed(self) -> tuple[CommittedBatch, int]:
        """A lease that ended with half its cap held, and its batch."""
        pair = (self._machine, self._buyer)
        (lease,), _gas = self._leases.opened([pair])
        self._leases.begun([pair], [lease])
        self.chain.pass_time(DURATION + 1)
        closing = self.market.closing(*pair, lease, CAP // 2)
        self.chain.send(self.market.matcher, self.market.closings([closing]))
        batch = CommittedBatch(self.chain, lease)
        domain = self.chain.deployment.verification_domain
        signed = sign(batch.commit(), domain, self._provider.daily)
        gas = self.chain.send(self._provider.daily, CommitBatch(commit=signed)).gas
        return batch, gas

    def drawn(self, batch: CommittedBatch) -> int:
        """Draw it; verifiers take turns."""
        turn, place = self._batches % 2, self._batches // 2 + 1
        self._batches += 1
        self.chain.mine(2)
        call = RevealPreimage(lease=batch.lease, batch_no=0, preimage=_chain_of(turn)[place])
        return self.chain.send(_VERIFIERS[turn], call).gas

    def ended(self, batch: CommittedBatch) -> int:
        """Every drawn segment matched."""
        lease = batch.lease
        body = Results(
            provider=lease.provider,
            index=lease.index,
            seq=lease.seq,
            batch_no=0,
            incomparable=0,
        )
        verifier = _VERIFIERS[(self._batches - 1) % 2]
        results = sign(body, self.chain.deployment.verification_domain, verifier)
        call = FinaliseBatch(lease=lease, batch_no=0, results=results)
        return self.chain.send(verifier, call).gas

    def round(self) -> BatchGas:
        """A batch in which everything matched."""
        batch, commit = self.committed()
        return BatchGas(commit=commit, reveal=self.drawn(batch), finalise=self.ended(batch))

    def slashed(self) -> tuple[int, int]:
        """The gas of an accusation, and of the conviction when its window has closed."""
        batch, _gas = self.committed()
        self.drawn(batch)
        accused = self.chain.send(_VERIFIERS[0], batch.accusation(self.chain, 41)).gas
        self.chain.pass_time(CHALLENGE_S + 1)
        call = ConvictSegment(lease=batch.lease, batch_no=0, i=41)
        return accused, self.chain.send(_VERIFIERS[1], call).gas
