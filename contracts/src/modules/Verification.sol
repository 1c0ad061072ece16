// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBook} from "../interfaces/ILeaseBook.sol";
import {IVerification} from "../interfaces/IVerification.sol";
import {AuditLib} from "../libraries/AuditLib.sol";
import {SigCheck} from "../libraries/SigCheck.sol";
import {
    AuditWindows,
    Batch,
    BatchState,
    Commit,
    Ending,
    Opening,
    Payout,
    Results,
    Verifier
} from "../types/Audits.sol";
import {BatchWord, BatchWordLibrary} from "../types/BatchWord.sol";
import {DisputeWord} from "../types/DisputeWord.sol";
import {MachineKey} from "../types/MachineKey.sol";
import {VerificationBase} from "./VerificationBase.sol";
import {VerificationFaults} from "./VerificationFaults.sol";

/// @title Verification (see {IVerification})
/// @dev Here: how a batch begins and ends; {VerificationDraws} and {VerificationFaults} are what may come between. No
/// owner and no way to change anything. State is written before LeaseBook is called; LeaseBook is ours and calls
/// nothing but the token.
contract Verification is VerificationFaults {
    /// @param book_ Must name this contract as its Verification.
    /// @param verifiers_ Two different keys; LeaseBook need not know them.
    constructor(ILeaseBook book_, Verifier[2] memory verifiers_, AuditWindows memory windows_)
        VerificationBase(book_, verifiers_, windows_)
    {}

    // ---------------------------------------------------------------------------------------------- commit

    /// @inheritdoc IVerification
    function commitBatch(Commit calldata commit, bytes calldata signature) external {
        // Checks
        if (commit.n == 0 || commit.n > AuditLib.SEGMENTS_MAX || commit.root == 0) {
            revert Verification_BadBatch(commit.n);
        }
        address signer = msg.sender;
        if (signature.length != 0) signer = SigCheck.recover(_hashTypedDataV4(AuditLib.hash(commit)), signature);
        (MachineKey machine, Row storage row) = _rowOf(commit.provider, commit.index, commit.seq, commit.batchNo);
        if (row.root != 0) revert Verification_WrongState(row.word.state());
        // LeaseBook's own checks, of the signer too; it calls nobody.
        uint256 times = (FINE_TIMES + commit.n - 1) / commit.n;
        (uint256 value, uint256 auditBps, uint32 buyerId, uint16 marketId, uint256 locked) =
            BOOK.takeHeld(machine, commit.seq, commit.batchNo, signer, times);
        // Effects
        row.root = commit.root;
        row.word = BatchWordLibrary.committed({
            value_: value,
            auditBps_: auditBps,
            locked_: locked,
            n_: commit.n,
            buyerId_: buyerId,
            marketId_: marketId,
            number_: _batchCount++
        });
        emit BatchCommitted({
            machineKey: machine,
            seq: commit.seq,
            batchNo: commit.batchNo,
            root: commit.root,
            n: commit.n,
            value: uint48(value),
            locked: uint64(locked * BOND_UNIT)
        });
    }

    // ---------------------------------------------------------------------------------------------- end

    /// @inheritdoc IVerification
    function finalize(Ending[] calldata endings) external {
        for (uint256 k; k < endings.length; ++k) {
            _finalize(endings[k]);
        }
    }

    function _finalize(Ending calldata ending) private {
        // Checks
        Results calldata results = ending.results;
        (MachineKey machine, Row storage row) = _rowOf(results.provider, results.index, results.seq, results.batchNo);
        (BatchWord word, DisputeWord disputes) = (row.word, row.disputes);
        // Whoever copies results from a pending call may end one batch first; the others go on.
        if (_hasEnded(word.state())) return;
        _requireQuiet(row, disputes);
        bool audited = ending.signature.length != 0;
        address audits = audited ? _requireResults(word, results, ending.signature) : _requireHardCap(word);
        // Effects
        uint256 lost = audited ? _lost(row.root, word, disputes, results.incomparable, ending.openings) : 0;
        Payout memory payout = _split(word, disputes, lost, audits);
        BatchState state = BatchState.PARTIAL;
        if (!audited && !word.isForfeit()) state = BatchState.FINAL_UNVERIFIED;
        bool clean = results.incomparable == 0 && disputes.settled() == 0 && disputes.returned() == 0;
        if (audited && clean) state = BatchState.FINAL;
        row.word = word.withState(state).withLocked(0);
        // Interactions
        uint256 fee = BOOK.payHeld(machine, payout);
        emit BatchFinalised({
            machineKey: machine,
            seq: results.seq,
            batchNo: results.batchNo,
            state: state,
            provider: uint48(payout.pay - fee),
            market: uint48(fee),
            audits: uint56(payout.auditPay),
            buyer: payout.toBuyer,
            burnt: uint48(payout.burnt)
        });
    }

    /// @dev Nothing is open that could still change what is paid.
    function _requireQuiet(Row storage row, DisputeWord disputes) private view {
        if (disputes.accused() != 0) revert Verification_WrongState(BatchState.ACCUSED);
        uint256 open = row.challenges.open();
        if (open != 0) revert Verification_Challenged(open);
    }

    /// @return audits Whose audits they were.
    function _requireResults(BatchWord word, Results calldata results, bytes calldata signature)
        private
        view
        returns (address audits)
    {
        _requireState(word, BatchState.DRAWN);
        address signer = SigCheck.recover(_hashTypedDataV4(AuditLib.hash(results)), signature);
        uint256 verifier = word.number();
        if (signer != _signerOf(verifier)) {
            // The other one steps in only where the first left a batch lying: it cannot snatch its audit pay.
            ++verifier;
            bool late = block.timestamp >= word.committedAt() + HARD_CAP / 2;
            if (signer != _signerOf(verifier) || !late) revert Verification_NotVerifier(signer);
        }
        return _auditsOf(verifier);
    }

    /// @return audits Nobody's.
    function _requireHardCap(BatchWord word) private view returns (address audits) {
        if (word.state() == BatchState.NONE) revert Verification_WrongState(BatchState.NONE);
        uint256 opensAt = word.committedAt() + HARD_CAP;
        if (block.timestamp < opensAt) revert Verification_TooEarly(opensAt);
        return address(0);
    }

    /// @dev The weight of every segment that is incomparable; what is settled went back already.
    function _lost(
        bytes32 root,
        BatchWord word,
        DisputeWord disputes,
        uint256 incomparable,
        Opening[] calldata openings
    ) private pure returns (uint256 weight) {
        uint256 all = (1 << word.n()) - 1;
        if (incomparable > all) revert Verification_WrongSegment(uint16(word.n()));
        uint256 toShow = incomparable & ~disputes.settled();
        if (word.isForfeit()) return 0;
        if ((incomparable | disputes.settled()) == all) return AuditLib.WEIGHT_ONE;
        uint256 next;
        for (uint16 i; toShow != 0; ++i) {
            if (toShow & 1 != 0) {
                if (next == openings.length || openings[next].i != i) revert Verification_NotShown(i);
                Opening calldata shown = openings[next++];
                _requireProof(root, word, i, shown.leaf, shown.weight, shown.proof);
                weight += shown.weight;
            }
            toShow >>= 1;
        }
    }

    /// @dev Conservation: pay + toBuyer + auditPay + burnt is what is left of the value, and the audit share.
    function _split(BatchWord word, DisputeWord disputes, uint256 lost, address audits)
        private
        pure
        returns (Payout memory payout)
    {
        uint256 audit = _auditOf(word);
        uint256 left = word.value() - _priceOf(word, disputes.returned());
        (, uint256 price) = _giveBack(word, disputes, lost);
        uint256 rest = left - price;
        if (word.isForfeit()) (payout.burnt, rest) = (uint64(rest), 0);
        uint256 auditPay = audits != address(0) ? audit * rest / word.value() : 0;
        (payout.buyerId, payout.marketId) = (word.buyerId(), word.marketId());
        (payout.pay, payout.toBuyer) = (uint64(rest), uint64(price + audit - auditPay));
        (payout.audits, payout.auditPay, payout.unlock) = (audits, uint64(auditPay), uint24(word.locked()));
    }

    // ---------------------------------------------------------------------------------------------- views

    /// @inheritdoc IVerification
    function batchOf(address provider, uint32 index, uint24 seq, uint16 batchNo)
        external
        view
        returns (Batch memory batch)
    {
        (, Row storage row) = _rowOf(provider, index, seq, batchNo);
        (BatchWord word, DisputeWord disputes) = (row.word, row.disputes);
        batch.state = word.state();
        if (batch.state == BatchState.DRAWN && disputes.accused() != 0) batch.state = BatchState.ACCUSED;
        (batch.n, batch.root, batch.seed) = (uint16(word.n()), row.root, row.seed);
        batch.value = uint48(word.value());
        if (!_hasEnded(word.state())) {
            batch.left = uint48(word.value() - _priceOf(word, disputes.returned()));
            batch.audit = uint56(_auditOf(word));
        }
        batch.locked = uint64(word.locked() * BOND_UNIT);
        (batch.number, batch.blockNumber) = (uint40(word.number()), uint48(word.blockNumber()));
        batch.committedAt = uint32(word.committedAt());
        (batch.accused, batch.settled) = (uint128(disputes.accused()), uint128(disputes.settled()));
        batch.challenged = uint128(row.challenges.open());
        (batch.silent, batch.answerBy) = (uint128(row.challenges.silent()), uint32(row.challenges.until()));
    }

    /// @inheritdoc IVerification
    function verifiers() external view returns (Verifier[2] memory) {
        return [_verifier(0), _verifier(1)];
    }

    /// @inheritdoc IVerification
    function auditWindows() external view returns (AuditWindows memory) {
        return AuditWindows({
            challenge: uint32(CHALLENGE),
            hardCap: uint32(HARD_CAP),
            lateSlash: uint32(LATE_SLASH),
            answer: uint32(ANSWER)
        });
    }

    /// @inheritdoc IVerification
    function batchCount() external view returns (uint40) {
        return _batchCount;
    }

    /// @inheritdoc IVerification
    function headOf(uint256 verifier) external view returns (bytes32 preimage, uint40 position) {
        return (_heads[verifier].preimage, _heads[verifier].position);
    }

    /// @inheritdoc IVerification
    function leaseBook() external view returns (address) {
        return address(BOOK);
    }

    /// @inheritdoc IVerification
    function DOMAIN_SEPARATOR() external view returns (bytes32) {
        return _domainSeparatorV4();
    }
}
