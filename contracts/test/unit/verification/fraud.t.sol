// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {IVerification} from "../../../src/interfaces/IVerification.sol";
import {BatchState, Commit} from "../../../src/types/Audits.sol";
import {VERIFIED} from "../../../src/types/Flags.sol";
import {SkipCode} from "../../../src/types/Lifecycle.sol";
import {Accept, Ask, Bid, Ready, Voucher} from "../../../src/types/Orders.sol";
import {AuditFixture} from "./AuditFixture.sol";

contract Fraud is AuditFixture {
    uint256 private constant V = 3e6;
    address private constant BURNT = 0x000000000000000000000000000000000000dEaD;

    address private other;

    function setUp() public override {
        super.setUp();
        other = _member("other buyer");
    }

    /// @dev A lease of the other buyer, ended with `paid` held.
    function _endedForOther(uint256 paid) private returns (uint24 seq) {
        (Ask memory ask, Bid memory bid) = _verifiedOrders();
        bid.buyer = other;
        seq = _openWith(ask, bid);
        Ready memory ready = _readyOf(provider, INDEX, seq);
        Accept memory accepted = Accept(provider, INDEX, seq, uint32(block.timestamp));
        book.begin(ready, _signReady(nodeKey, ready), accepted, _signAccept(other, accepted));
        skip(1 hours);
        Voucher memory voucher = _voucher(seq, paid);
        _close(matcher, voucher, _signFinal(other, voucher), _signFinal(nodeKey, voucher));
    }

    /// @dev A drawn batch of the other buyer with segment 1 accused, its window over.
    function _accusedForOther() private returns (uint24 seq) {
        seq = _endedForOther(V);
        _commitBatch(seq, 0);
        _drawBatch(seq, 0);
        _accuse(seq, 0, 1);
        skip(CHALLENGE + 1);
    }

    function _fraud() private returns (uint24 first, uint24 second) {
        first = _drawn(V);
        _punish(first, 0, 1);
        second = _accusedForOther();
        _convict(second, 0, 1);
    }

    function test_fraud_whenTwoBuyersWereWronged_thenSlashesAllThatIsFreeAndBurnsTheRest() external {
        uint24 first = _drawn(V);
        _punish(first, 0, 1); // its batch still locks 9 of the 88 that are left
        uint24 second = _accusedForOther();
        uint256 before = _cash(provider);
        uint256 burntBefore = token.balanceOf(BURNT);
        vm.expectEmit(address(module));
        emit IVerification.SegmentConvicted(_key(), second, 0, 1, 600_000, 79e6, 1_200_000);
        vm.expectEmit(address(module));
        emit IVerification.BatchFinalised(_key(), second, 0, BatchState.SLASHED, 0, 0, 0, 210_000, 2_400_000);
        vm.prank(stranger);
        _convict(second, 0, 1);
        assertEq(_bond(), 9);
        assertEq(_locked(), 9e6);
        assertEq(_cash(provider), before);
        assertEq(_cash(other), CASH - V + 600_000);
        assertEq(token.balanceOf(BURNT) - burntBefore, 79e6 - 1_200_000 + 2_400_000);
        assertEq(_cash(audits[1]), 1_200_000);
        assertTrue(book.isBarred(provider));
        _assertState(second, 0, BatchState.SLASHED);
        assertEq(_batch(second, 0).left, 0);
        _finalizeClean(first, 0); // what another batch holds and locks goes on
        _assertState(first, 0, BatchState.PARTIAL);
        assertEq(_locked(), 0);
        assertEq(book.batched(), 0);
    }

    function test_fraud_whenItIsTheSameBuyer_thenIsNone() external {
        uint24 first = _drawn(V);
        _punish(first, 0, 1);
        uint24 second = _drawn(V);
        _punish(second, 0, 1);
        _assertState(second, 0, BatchState.DRAWN);
        assertFalse(book.isBarred(provider));
        assertEq(_bond(), BOND - 24);
    }

    function test_fraud_whenTheFirstIsOlderThanThirtyDays_thenIsNone() external {
        uint24 first = _drawn(V);
        _punish(first, 0, 1);
        skip(30 days - 1 hours - 2 * CHALLENGE);
        uint24 second = _accusedForOther();
        uint256 snapshot = vm.snapshotState();
        skip(CHALLENGE - 1); // thirty days to the second
        _convict(second, 0, 1);
        _assertState(second, 0, BatchState.SLASHED);
        vm.revertToState(snapshot);
        skip(CHALLENGE);
        _convict(second, 0, 1);
        _assertState(second, 0, BatchState.DRAWN);
        assertFalse(book.isBarred(provider));
    }

    /// @dev One remembered conviction is enough: A, A, B is found as A, B is.
    function test_fraud_whenTheSameBuyersLaterFaultLiesBetween_thenIsFound() external {
        uint24 first = _drawn(V);
        _punish(first, 0, 1);
        skip(25 days);
        _finalizeClean(first, 0);
        uint24 second = _drawn(V);
        _punish(second, 0, 1);
        skip(25 days);
        _finalizeClean(second, 0);
        uint24 third = _accusedForOther();
        _convict(third, 0, 1);
        _assertState(third, 0, BatchState.SLASHED);
    }

    function test_fraud_whenTheSecondBatchEndedUnverified_thenOnlyTheBondPays() external {
        uint24 first = _drawn(V);
        _punish(first, 0, 1);
        _finalizeClean(first, 0);
        uint24 second = _endedForOther(V);
        _commitBatch(second, 0);
        _drawBatch(second, 0);
        skip(HARD_CAP);
        _finalizeUnverified(second, 0);
        uint256 before = _cash(other);
        _accuse(second, 0, 1);
        skip(CHALLENGE + 1);
        vm.expectEmit(address(module));
        emit IVerification.BatchFinalised(_key(), second, 0, BatchState.SLASHED, 0, 0, 0, 0, 0);
        _convict(second, 0, 1);
        assertEq(_cash(other), before + 600_000);
        assertEq(_bond(), 0);
        assertEq(book.batched(), 0);
        assertTrue(book.isBarred(provider));
    }

    function test_fraud_whenOtherSegmentsAreAccused_thenTheyAreNotConvictedAgain() external {
        uint24 first = _drawn(V);
        _punish(first, 0, 1);
        uint24 second = _endedForOther(V);
        _commitBatch(second, 0);
        _drawBatch(second, 0);
        _accuse(second, 0, 0);
        _accuse(second, 0, 1);
        skip(CHALLENGE + 1);
        _convict(second, 0, 1);
        bytes memory error_ =
            abi.encodeWithSelector(IVerification.Verification_WrongState.selector, BatchState.SLASHED);
        vm.expectRevert(error_);
        _convict(second, 0, 0);
        uint256 before = _cash(provider);
        _finalizeUnverified(second, 0); // over: nothing happens
        assertEq(_cash(provider), before);
    }

    // ------------------------------------------------------------------------------------------------ barred

    function test_barred_thenNoVerifiedLeaseOpensOnAnyMachine() external {
        _fraud();
        vm.startPrank(provider);
        book.addMachine(INDEX + 1, BOND, product);
        book.addBond(INDEX, BOND);
        vm.stopPrank();
        (Ask memory ask, Bid memory bid) = _verifiedOrders();
        _assertSkipped(matcher, _paired(ask, bid), SkipCode.PROVIDER_BARRED);
        ask = _askFrom(provider, INDEX + 1);
        ask.flags = VERIFIED;
        _assertSkipped(matcher, _paired(ask, bid), SkipCode.PROVIDER_BARRED);
        (ask, bid) = (_ask(), _bid());
        _openWith(ask, bid); // a plain one
    }

    function test_barred_thenNothingMoreIsCommittedAndHeldPayGoesBack() external {
        uint24 running = _drawn(V);
        _punish(running, 0, 1);
        uint24 second = _accusedForOther();
        uint24 third = _endedWith(1e6);
        _convict(second, 0, 1);
        Commit memory commit = _commit(third, 0);
        bytes memory signature = _signCommit(nodeKey, commit);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_Barred.selector, provider));
        module.commitBatch(commit, signature);
        uint256 before = _cash(buyer);
        skip(COMMIT_WINDOW + 1);
        book.returnHeld(provider, INDEX, third);
        assertEq(_cash(buyer), before + 1_070_000);
    }

    /// @dev Silence is a fault of its lease, and never fraud: one verifier alone asks.
    function test_silence_whenInTwoBuyersJobs_thenIsNoFraud() external {
        uint24 first = _drawn(V);
        _punish(first, 0, 1);
        uint24 second = _endedForOther(V);
        _commitBatch(second, 0);
        _drawBatch(second, 0);
        vm.prank(verifier[1]);
        module.challenge(provider, INDEX, second, 0, 0, 3);
        skip(ANSWER + 1);
        module.convictSilent(provider, INDEX, second, 0, 0);
        _assertState(second, 0, BatchState.DRAWN);
        assertFalse(book.isBarred(provider));
        assertGe(_bond() * 1e6, _locked());
    }
}
