// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IVerification} from "../interfaces/IVerification.sol";
import {AuditLib} from "../libraries/AuditLib.sol";
import {SigCheck} from "../libraries/SigCheck.sol";
import {BatchState, Leaf, Opening, Payout, Sibling, Slash, Verdict, VerdictResult} from "../types/Audits.sol";
import {BatchWord} from "../types/BatchWord.sol";
import {ChallengeWord, DisputeWord} from "../types/DisputeWord.sol";
import {MachineKey, machineKeyOf} from "../types/MachineKey.sol";
import {VerificationDraws} from "./VerificationDraws.sol";

/// @title VerificationFaults: accusations, silence, and what a conviction costs
abstract contract VerificationFaults is VerificationDraws {
    uint256 private constant FRAUD_WINDOW = 30 days;
    /// @dev Out of a fine of twenty prices, two: what the two runs cost that a conviction takes of each side.
    uint256 private constant BOUNTY_TIMES = 2;

    /// @dev A provider's newest conviction on two verdicts, and the lease of its newest conviction of any kind. One of
    /// the former is enough: of any two within the window with different buyers, two that follow each other have
    /// different buyers, too, and lie no further apart. Older leases are in `_convicted`, so that the first fault of
    /// most takes one slot.
    struct Fault {
        uint32 buyerId;
        uint32 convictedAt;
        uint32 index;
        uint24 seq;
    }

    mapping(address provider => Fault) private _faults;
    mapping(bytes32 leaseKey => bool) private _convicted;

    // ---------------------------------------------------------------------------------------------- two verdicts

    /// @inheritdoc IVerification
    function accuse(
        Leaf calldata leaf,
        Sibling[] calldata proof,
        Verdict calldata verdict,
        bytes calldata first,
        bytes calldata second
    ) external {
        // Checks
        (MachineKey machine, Row storage row) = _rowOf(leaf.provider, leaf.index, leaf.seq, leaf.batchNo);
        BatchWord word = row.word;
        _requireAccusable(word);
        (bytes32 hashed, uint256 start) = _requireLeaf(row.root, word, leaf, proof);
        _requireMismatch(leaf, hashed, verdict);
        _requireBoth(_hashTypedDataV4(AuditLib.hash(verdict)), first, second);
        DisputeWord disputes = row.disputes;
        bool known = (disputes.accused() | disputes.settled()) & (1 << leaf.i) != 0;
        if (known || _wasSilent(row, start, leaf.weight)) revert Verification_WrongSegment(leaf.i);
        // Effects
        uint32 until = uint32(block.timestamp + CHALLENGE);
        row.disputes = disputes.withAccused(leaf.i, until);
        Opening memory opening = Opening({i: leaf.i, leaf: hashed, weight: leaf.weight, proof: proof});
        emit SegmentAccused({
            machineKey: machine, seq: leaf.seq, batchNo: leaf.batchNo, until: until, opening: opening
        });
    }

    /// @inheritdoc IVerification
    function contest(Verdict calldata verdict, bytes calldata signature, Opening calldata opening) external {
        // Checks
        (MachineKey machine, Row storage row) = _rowOf(verdict.provider, verdict.index, verdict.seq, verdict.batchNo);
        (BatchWord word, DisputeWord disputes) = _requireAccused(row, opening);
        if (block.timestamp > disputes.until()) revert Verification_TooLate(disputes.until());
        bool differs =
            verdict.result == uint8(VerdictResult.MATCH) || verdict.result == uint8(VerdictResult.INCOMPARABLE);
        if (!differs || verdict.i != opening.i || verdict.leaf != opening.leaf) revert Verification_BadVerdict();
        address signer = SigCheck.recover(_hashTypedDataV4(AuditLib.hash(verdict)), signature);
        if (!_isVerifier(signer)) revert Verification_NotVerifier(signer);
        // Effects
        Payout memory payout;
        disputes = disputes.withSettled(opening.i);
        if (word.state() == BatchState.DRAWN) {
            uint256 price;
            (disputes, price) = _giveBack(word, disputes, opening.weight);
            (payout.buyerId, payout.toBuyer) = (word.buyerId(), uint64(price));
        }
        row.disputes = disputes;
        // Interactions
        if (payout.toBuyer != 0) BOOK.payHeld(machine, payout);
        emit AccusationContested({
            machineKey: machine,
            seq: verdict.seq,
            batchNo: verdict.batchNo,
            i: opening.i,
            verifier: signer,
            refund: uint48(payout.toBuyer)
        });
    }

    /// @inheritdoc IVerification
    function convict(address provider, uint32 index, uint24 seq, uint16 batchNo, Opening calldata opening) external {
        // Checks
        (MachineKey machine, bytes32 leaseKey, bytes32 key) = _keysOf(provider, index, seq, batchNo);
        Row storage row = _batches[key];
        (BatchWord word, DisputeWord disputes) = _requireAccused(row, opening);
        if (block.timestamp <= disputes.until()) revert Verification_TooEarly(disputes.until() + 1);
        // Effects
        disputes = disputes.withSettled(opening.i);
        (Fault memory fault, bool repeated) = _remembered(provider, index, seq, leaseKey);
        uint32 buyerId = word.buyerId();
        bool fraud =
            fault.buyerId != 0 && fault.buyerId != buyerId && block.timestamp <= fault.convictedAt + FRAUD_WINDOW;
        (fault.buyerId, fault.convictedAt) = (buyerId, uint32(block.timestamp));
        _faults[provider] = fault;
        bool late = word.state() == BatchState.FINAL_UNVERIFIED;
        Slash memory slash;
        uint256 price;
        if (late) {
            price = _priceOf(word, opening.weight);
            (slash.fromBond, slash.fine) = (uint64(price), uint64(price * FINE_TIMES));
        } else {
            (disputes, price) = _giveBack(word, disputes, opening.weight);
            word = _fine(slash, word, price);
        }
        row.disputes = disputes;
        (slash.buyerId, slash.bounty) = (buyerId, uint64(price * BOUNTY_TIMES));
        slash.audits = _auditsOf(word.number());
        if (repeated) word = word.forfeited();
        if (fraud) {
            // Whatever the lock still holds is free for the slash.
            (slash.fine, slash.bar) = (type(uint64).max, true);
            slash.unlock += uint24(word.locked());
            word = word.withLocked(0).withState(BatchState.SLASHED);
        }
        row.word = word;
        // Interactions
        _take(machine, seq, batchNo, opening.i, slash);
        if (fraud) _burnRest(machine, seq, batchNo, word, late, disputes.returned());
    }

    // ---------------------------------------------------------------------------------------------- silence

    /// @inheritdoc IVerification
    /// @dev No fraud by silence and no bounty: one verifier alone asks, and an outage must cost neither an identity nor
    /// pay who asked.
    function convictSilent(address provider, uint32 index, uint24 seq, uint16 batchNo, uint16 j) external {
        // Checks
        (MachineKey machine, bytes32 leaseKey, bytes32 key) = _keysOf(provider, index, seq, batchNo);
        Row storage row = _batches[key];
        BatchWord word = row.word;
        _requireState(word, BatchState.DRAWN);
        ChallengeWord challenges = _requireOpen(row, j);
        if (block.timestamp <= challenges.until()) revert Verification_TooEarly(challenges.until() + 1);
        // Effects
        Slash memory slash;
        (DisputeWord disputes, uint256 price) =
            _giveBack(word, row.disputes, AuditLib.WEIGHT_ONE / challenges.points());
        word = _fine(slash, word, price);
        slash.buyerId = word.buyerId();
        (Fault memory fault, bool repeated) = _remembered(provider, index, seq, leaseKey);
        _faults[provider] = fault;
        if (repeated) word = word.forfeited();
        (row.word, row.disputes, row.challenges) = (word, disputes, challenges.withSilent(j));
        // Interactions
        (, uint256 fine,) = BOOK.slashBond(machine, slash);
        emit SilenceConvicted({
            machineKey: machine, seq: seq, batchNo: batchNo, j: j, refund: uint48(slash.fromBatch), fine: uint64(fine)
        });
    }

    /// @dev A silent point is paid for already: the leaf under it, shown later, is not convicted again.
    function _wasSilent(Row storage row, uint256 start, uint256 weight) private view returns (bool) {
        uint256 silent = row.challenges.silent();
        if (silent == 0) return false;
        bytes32 seed = row.seed;
        for (uint256 j; silent >> j != 0; ++j) {
            uint256 point = AuditLib.drawPoint(seed, j);
            if ((silent >> j) & 1 != 0 && point >= start && point < start + weight) return true;
        }
        return false;
    }

    // ---------------------------------------------------------------------------------------------- what it costs

    /// @dev The provider's fault with this lease as its newest, and whether the lease had one before.
    function _remembered(address provider, uint32 index, uint24 seq, bytes32 leaseKey)
        private
        returns (Fault memory fault, bool repeated)
    {
        fault = _faults[provider];
        if (fault.index == index && fault.seq == seq) return (fault, true);
        repeated = _convicted[leaseKey];
        // Leases count from 1: without a fault there is none to remember.
        if (fault.seq != 0) _convicted[AuditLib.leaseKey(machineKeyOf(provider, fault.index), fault.seq)] = true;
        (fault.index, fault.seq) = (index, seq);
    }

    /// @dev A fault in a batch that is still here: the price out of its pay, the fine out of its lock. Locks are whole
    /// bond units, so what is freed for the fine is what the bond falls by.
    function _fine(Slash memory slash, BatchWord word, uint256 price) private view returns (BatchWord) {
        uint256 fine = price * FINE_TIMES;
        uint256 freed = (fine + BOND_UNIT - 1) / BOND_UNIT;
        if (freed > word.locked()) (freed, fine) = (word.locked(), word.locked() * BOND_UNIT);
        (slash.fromBatch, slash.fine, slash.unlock) = (uint64(price), uint64(fine), uint24(freed));
        return word.withLocked(word.locked() - freed);
    }

    function _take(MachineKey machine, uint24 seq, uint16 batchNo, uint16 i, Slash memory slash) private {
        (uint256 refunded, uint256 fine, uint256 bounty) = BOOK.slashBond(machine, slash);
        emit SegmentConvicted({
            machineKey: machine,
            seq: seq,
            batchNo: batchNo,
            i: i,
            refund: uint48(slash.fromBatch + refunded),
            fine: uint64(fine),
            bounty: uint64(bounty)
        });
    }

    /// @dev Fraud: nothing of the batch is paid, audits of it neither. One that ended unverified was paid already.
    function _burnRest(MachineKey machine, uint24 seq, uint16 batchNo, BatchWord word, bool late, uint256 returned)
        private
    {
        Payout memory payout;
        if (!late) {
            (payout.buyerId, payout.toBuyer) = (word.buyerId(), uint64(_auditOf(word)));
            payout.burnt = uint64(word.value() - _priceOf(word, returned));
            BOOK.payHeld(machine, payout);
        }
        emit BatchFinalised({
            machineKey: machine,
            seq: seq,
            batchNo: batchNo,
            state: BatchState.SLASHED,
            provider: 0,
            market: 0,
            audits: 0,
            buyer: payout.toBuyer,
            burnt: uint48(payout.burnt)
        });
    }

    // ---------------------------------------------------------------------------------------------- lookups

    /// @dev Accusing ends in time, or two verifiers could keep a batch's pay back for ever.
    function _requireAccusable(BatchWord word) private view {
        uint256 closesAt = word.committedAt() + HARD_CAP;
        if (word.state() == BatchState.FINAL_UNVERIFIED) closesAt += LATE_SLASH;
        else _requireState(word, BatchState.DRAWN);
        if (block.timestamp > closesAt) revert Verification_TooLate(closesAt);
    }

    function _requireMismatch(Leaf calldata leaf, bytes32 hashed, Verdict calldata verdict) private pure {
        bool same = verdict.provider == leaf.provider && verdict.index == leaf.index && verdict.seq == leaf.seq
            && verdict.batchNo == leaf.batchNo && verdict.i == leaf.i && verdict.leaf == hashed;
        if (!same || verdict.result != uint8(VerdictResult.MISMATCH)) revert Verification_BadVerdict();
    }

    function _requireBoth(bytes32 digest, bytes calldata first, bytes calldata second) private view {
        (address a, address b) = (SigCheck.recover(digest, first), SigCheck.recover(digest, second));
        if (!_isVerifier(a)) revert Verification_NotVerifier(a);
        if (!_isVerifier(b) || b == a) revert Verification_NotVerifier(b);
    }

    /// @dev The weight is not kept with an accusation: whoever goes on shows the leaf again.
    function _requireAccused(Row storage row, Opening calldata opening)
        private
        view
        returns (BatchWord word, DisputeWord disputes)
    {
        (word, disputes) = (row.word, row.disputes);
        bool live = word.state() == BatchState.DRAWN || word.state() == BatchState.FINAL_UNVERIFIED;
        if (!live) revert Verification_WrongState(word.state());
        uint16 i = opening.i;
        if (i >= word.n() || disputes.accused() & (1 << i) == 0) revert Verification_WrongSegment(i);
        _requireProof(row.root, word, i, opening.leaf, opening.weight, opening.proof);
    }
}
