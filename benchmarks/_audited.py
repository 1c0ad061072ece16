"""Verified leases: what a batch of 100 segments costs from commitment to end, and a slash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from benchmarks._chain import Chain, named_key
from benchmarks._leases import Leases
from benchmarks._parties import CAP, DURATION, Machine, Market
from cloud_gpu.protocol.audit import (
    SEGMENTS_MAX,
    Commit,
    Leaf,
    Opening,
    Results,
    Sibling,
    SumTree,
    Verdict,
    VerdictResult,
    draw_point,
    segment_at,
    weights,
)
from cloud_gpu.protocol.calls import (
    AccuseSegment,
    CommitBatch,
    ConvictSegment,
    Draw,
    Ending,
    FinaliseBatches,
    OpenLeaf,
    RevealPreimages,
)
from cloud_gpu.protocol.deployment import AuditPlan, AuditWindows, VerifierAccount
from cloud_gpu.protocol.identity import KeyRole, LocalKey
from cloud_gpu.protocol.lease import LeaseFlags, LeaseKey
from cloud_gpu.protocol.signing import Signed, sign
from cloud_gpu.protocol.units import BasisPoints
from cloud_gpu.protocol.values import Digest, keccak256

CHALLENGE_S = 3_600
ANSWER_S = 900
AUDIT = BasisPoints(700)
_DRAWS = 1_024
VERIFIERS = (named_key("verifier 0"), named_key("verifier 1"))


@cache
def preimages(verifier: int) -> list[Digest]:
    """A verifier's preimages in the order in which they are revealed, the anchor before them."""
    found = [keccak256(b"seed %d" % verifier)]
    for _ in range(_DRAWS):
        found.append(keccak256(found[-1].raw))
    return found[::-1]


def _account(number: int) -> VerifierAccount:
    return VerifierAccount(
        signer=VERIFIERS[number].address,
        anchor=preimages(number)[0],
        audits=named_key(f"audits {number}").address,
    )


AUDITS = AuditPlan(
    verifiers=(_account(0), _account(1)),
    windows=AuditWindows(
        commit=86_400, challenge=CHALLENGE_S, hard_cap=86_400, late_slash=604_800, answer=ANSWER_S
    ),
)


class CommittedBatch:
    """A lease's segments, of weights as equal as can be, under one root."""

    def __init__(self, chain: Chain, lease: LeaseKey, n: int = SEGMENTS_MAX) -> None:
        self.lease, self.n = lease, n
        self._chain = chain
        place = chain.deployment.chain_id, chain.deployment.verification
        self._leaves = [
            Leaf(
                lease=lease,
                batch_no=0,
                i=i,
                weight=weight,
                job=keccak256(b"job %d" % i),
                result=keccak256(b"result %d" % i),
                salt=keccak256(b"salt %d" % i),
            )
            for i, weight in enumerate(weights([1] * n))
        ]
        self._hashes = [leaf.hash(*place) for leaf in self._leaves]
        pairs = zip(self._hashes, self._leaves, strict=True)
        self._tree = SumTree([Sibling(hash=each, weight=leaf.weight) for each, leaf in pairs])

    def commit(self) -> Commit:
        """What the node signs."""
        lease = self.lease
        return Commit(
            provider=lease.provider,
            index=lease.index,
            seq=lease.seq,
            batch_no=0,
            root=self._tree.root,
            n=self.n,
        )

    def accusation(self, i: int) -> AccuseSegment:
        """By both verifiers."""
        first, second = (self.verdict(i, VerdictResult.MISMATCH, key) for key in VERIFIERS)
        return AccuseSegment(
            leaf=self._leaves[i], proof=self._tree.proof(i), first=first, second=second
        )

    def verdict(self, i: int, result: VerdictResult, key: LocalKey) -> Signed[Verdict]:
        """Of one verifier."""
        lease = self.lease
        verdict = Verdict(
            provider=lease.provider,
            index=lease.index,
            seq=lease.seq,
            batch_no=0,
            i=i,
            leaf=self._hashes[i],
            result_digest=keccak256(b"something else"),
            result=result,
        )
        return sign(verdict, self._chain.deployment.verification_domain, key)

    def ending(self, verifier: int) -> Ending:
        """Every drawn segment matched."""
        lease = self.lease
        body = Results(
            provider=lease.provider,
            index=lease.index,
            seq=lease.seq,
            batch_no=0,
            incomparable=0,
        )
        signed = sign(body, self._chain.deployment.verification_domain, VERIFIERS[verifier])
        return Ending(lease=lease, batch_no=0, results=signed)

    def draw(self, number: int) -> Draw:
        """Of the deployment's batch of that number; verifiers take turns."""
        preimage = preimages(number % 2)[number // 2 + 1]
        return Draw(lease=self.lease, batch_no=0, preimage=preimage)

    def shown(self, j: int, seed: Digest) -> OpenLeaf:
        """The leaf at the j-th point of a draw."""
        i = segment_at(draw_point(seed, j), [leaf.weight for leaf in self._leaves])
        return OpenLeaf(j=j, leaf=self._leaves[i], proof=self._tree.proof(i))

    def opening(self, i: int) -> Opening:
        """Of one segment."""
        weight = self._leaves[i].weight
        return Opening(i=i, leaf=self._hashes[i], weight=weight, proof=self._tree.proof(i))


@dataclass(frozen=True)
class BatchGas:
    """Of one batch of `SEGMENTS_MAX` segments, drawn and ended together with others."""

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

    def drawn(self, batches: Sequence[CommittedBatch]) -> int:
        """Draw them in one call."""
        first = self._batches
        self._batches += len(batches)
        self.chain.mine(2)
        draws = tuple(batch.draw(number) for number, batch in enumerate(batches, start=first))
        return self.chain.send(VERIFIERS[0], RevealPreimages(draws=draws)).gas

    def ended(self, batches: Sequence[CommittedBatch]) -> int:
        """End the ones that were drawn last; every drawn segment matched."""
        first = self._batches - len(batches)
        endings = [batch.ending(n % 2) for n, batch in enumerate(batches, start=first)]
        return self.chain.send(VERIFIERS[0], FinaliseBatches(endings=tuple(endings))).gas

    def round(self, n: int) -> BatchGas:
        """So many batches, in which everything matched."""
        made = [self.committed() for _ in range(n)]
        batches = [batch for batch, _gas in made]
        drawn, ended = self.drawn(batches), self.ended(batches)
        return BatchGas(commit=made[-1][1], reveal=drawn // n, finalise=ended // n)

    def slashed(self) -> tuple[int, int]:
        """The gas of an accusation, and of the conviction when its window has closed."""
        batch, _gas = self.committed()
        self.drawn([batch])
        accused = self.chain.send(VERIFIERS[0], batch.accusation(41)).gas
        self.chain.pass_time(CHALLENGE_S + 1)
        call = ConvictSegment(lease=batch.lease, batch_no=0, opening=batch.opening(41))
        return accused, self.chain.send(VERIFIERS[1], call).gas
