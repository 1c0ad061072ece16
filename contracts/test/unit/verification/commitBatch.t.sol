// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {IVerification} from "../../../src/interfaces/IVerification.sol";
import {Batch, BatchState, Commit} from "../../../src/types/Audits.sol";
import {AuditFixture} from "./AuditFixture.sol";

contract CommitBatch is AuditFixture {
    function _assertRefused(Commit memory commit, bytes memory signature, bytes memory error_) private {
        vm.expectRevert(error_);
        module.commitBatch(commit, signature);
    }

    function _notOwner(address signer) private pure returns (bytes memory) {
        return abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotOwner.selector, signer);
    }

    function test_commitBatch_whenAllIsWell_thenTakesHeldPayAndLocksTheBond() external {
        uint24 seq = _endedWith(3e6);
        Commit memory commit = _commit(seq, 0);
        bytes memory signature = _signCommit(nodeKey, commit);
        vm.expectEmit(address(module));
        emit IVerification.BatchCommitted(_key(), seq, 0, commit.root, 3, 3e6, 21e6);
        vm.prank(stranger);
        module.commitBatch(commit, signature);
        Batch memory batch = _batch(seq, 0);
        assertEq(uint8(batch.state), uint8(BatchState.COMMITTED));
        assertEq(batch.n, 3);
        assertEq(batch.root, commit.root);
        assertEq(batch.value, 3e6);
        assertEq(batch.left, 3e6);
        assertEq(batch.audit, 210_000);
        assertEq(batch.locked, 21e6); // 7 = ceil(20 / 3) times
        assertEq(batch.blockNumber, block.number);
        assertEq(batch.committedAt, block.timestamp);
        assertEq(_locked(), 21e6);
        assertEq(book.batched(), 3_210_000);
        assertEq(_heldOf(seq).buyer, address(0), "the slot is clear");
        _assertAllSolvent();
    }

    function test_commitBatch_whenTheLockIsNoWholeUnit_thenRoundsUp() external {
        uint24 seq = _endedWith(1_000_001);
        _weigh(100, 10_000);
        _commitBatch(seq, 0);
        assertEq(_batch(seq, 0).locked, 2e6);
        assertEq(_locked(), 2e6);
    }

    function test_commitBatch_whenProviderOrNodeKeyCalls_thenNeedsNoSignature() external {
        uint24 seq = _endedWith(1e6);
        Commit memory commit = _commit(seq, 0);
        vm.prank(nodeKey);
        module.commitBatch(commit, "");
        _assertState(seq, 0, BatchState.COMMITTED);
        seq = _endedWith(1e6);
        commit = _commit(seq, 0);
        vm.prank(provider);
        module.commitBatch(commit, "");
        assertEq(_batch(seq, 0).number, 1);
        assertEq(module.batchCount(), 2);
    }

    function test_commitBatch_whenTheLeaseStillRuns_thenLaterBatchesTakeWhatWasHeldSince() external {
        uint24 seq = _openVerified();
        skip(1 hours);
        _settleAt(seq, 2e6);
        _commitBatch(seq, 0);
        assertEq(_heldOf(seq).nextBatchNo, 1);
        assertEq(_heldOf(seq).amount, 0);
        assertEq(_heldOf(seq).audit, CAP * AUDIT_BPS / 10_000 - 140_000);
        _closeAt(seq, 3e6);
        _commitBatch(seq, 1);
        assertEq(_batch(seq, 0).value, 2e6);
        assertEq(_batch(seq, 1).value, 1e6);
        assertEq(_batch(seq, 1).audit, 70_000);
        _assertAllSolvent();
    }

    function test_commitBatch_whenEverythingWasCommittedBeforeTheEnd_thenTheSlotIsClearAtTheEnd() external {
        uint24 seq = _openVerified();
        skip(1 hours);
        _settleAt(seq, 2e6);
        _commitBatch(seq, 0);
        _closeAt(seq, 2e6);
        assertEq(_heldOf(seq).buyer, address(0));
        assertEq(_cash(buyer), CASH - 2e6 - 140_000);
        _assertAllSolvent();
    }

    // ------------------------------------------------------------------------------------------------ refusals

    function test_commitBatch_whenTheBatchIsMalformed_thenReverts() external {
        uint24 seq = _endedWith(1e6);
        Commit memory commit = _commit(seq, 0);
        commit.n = 0;
        _assertRefused(commit, "", abi.encodeWithSelector(IVerification.Verification_BadBatch.selector, 0));
        commit.n = 101;
        _assertRefused(commit, "", abi.encodeWithSelector(IVerification.Verification_BadBatch.selector, 101));
        (commit.n, commit.root) = (3, 0);
        _assertRefused(commit, "", abi.encodeWithSelector(IVerification.Verification_BadBatch.selector, 3));
    }

    function test_commitBatch_whenAStrangerOrABuyersKeySigns_thenReverts() external {
        uint24 seq = _endedWith(1e6);
        Commit memory commit = _commit(seq, 0);
        _assertRefused(commit, _signCommit(stranger, commit), _notOwner(stranger));
        _assertRefused(commit, _signCommit(sessionKey, commit), _notOwner(sessionKey));
        _assertRefused(commit, "garbage", _notOwner(address(0)));
        vm.prank(stranger);
        _assertRefused(commit, "", _notOwner(stranger));
    }

    function test_commitBatch_whenTheNodeKeyWasRevokedOrExpired_thenReverts() external {
        uint24 seq = _endedWith(1e6);
        Commit memory commit = _commit(seq, 0);
        bytes memory signature = _signCommit(nodeKey, commit);
        bytes memory error_ = _notOwner(nodeKey);
        vm.prank(provider);
        book.revokeDelegate(nodeKey);
        skip(START - 1);
        uint256 snapshot = vm.snapshotState();
        module.commitBatch(commit, signature); // not yet in effect
        vm.revertToState(snapshot);
        skip(1);
        _assertRefused(commit, signature, error_);
    }

    function test_commitBatch_whenNothingIsHeld_thenReverts() external {
        uint24 seq = _openVerified();
        Commit memory commit = _commit(seq, 0);
        bytes memory signature = _signCommit(nodeKey, commit);
        bytes memory error_ = abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NothingHeld.selector, seq);
        _assertRefused(commit, signature, error_);
        _closeAt(seq, 0);
        _assertRefused(commit, signature, error_);
    }

    function test_commitBatch_whenItIsNotTheLeasesNext_thenReverts() external {
        uint24 seq = _openVerified();
        skip(1 hours);
        _settleAt(seq, 1e6);
        Commit memory commit = _commit(seq, 1);
        bytes memory signature = _signCommit(nodeKey, commit);
        _assertRefused(commit, signature, abi.encodeWithSelector(ILeaseBookLog.LeaseBook_WrongBatch.selector, 0));
        _commitBatch(seq, 0);
        _settleAt(seq, 2e6);
        commit = _commit(seq, 0);
        signature = _signCommit(nodeKey, commit);
        bytes memory error_ =
            abi.encodeWithSelector(IVerification.Verification_WrongState.selector, BatchState.COMMITTED);
        _assertRefused(commit, signature, error_);
    }

    function test_commitBatch_whenTheWindowIsOver_thenReverts() external {
        uint24 seq = _endedWith(1e6);
        Commit memory commit = _commit(seq, 0);
        bytes memory signature = _signCommit(nodeKey, commit);
        uint256 closesAt = block.timestamp + COMMIT_WINDOW;
        vm.warp(closesAt + 1);
        _assertRefused(commit, signature, abi.encodeWithSelector(ILeaseBookLog.LeaseBook_TooLate.selector, closesAt));
        vm.warp(closesAt);
        module.commitBatch(commit, signature);
    }

    function test_commitBatch_whenTheFreeBondIsTooLow_thenRevertsAndNothingMoves() external {
        uint24 seq = _openVerified();
        skip(2 hours);
        _settleAt(seq, 5_000_001);
        _weigh(1, 0); // one segment: twenty times 5.000001 is more than the bond of 100
        Commit memory commit = _commit(seq, 0);
        bytes memory signature = _signCommit(nodeKey, commit);
        bytes memory error_ = abi.encodeWithSelector(ILeaseBookLog.LeaseBook_BondTooLow.selector, 100e6, 101e6);
        _assertRefused(commit, signature, error_);
        assertEq(_heldOf(seq).amount, 5_000_001);
        vm.prank(provider);
        book.addBond(INDEX, 1);
        module.commitBatch(commit, signature);
        assertEq(_locked(), 101e6);
    }

    function test_commitBatch_whenTheMachineRetires_thenStillCommits() external {
        uint24 seq = _endedWith(1e6);
        vm.prank(provider);
        book.retire(INDEX);
        _commitBatch(seq, 0);
        _assertState(seq, 0, BatchState.COMMITTED);
    }
}
