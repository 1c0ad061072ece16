// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {IVerification} from "../../../src/interfaces/IVerification.sol";
import {BatchState, Opening, Sibling, Verdict, VerdictResult} from "../../../src/types/Audits.sol";
import {AuditFixture} from "./AuditFixture.sol";

contract Convictions is AuditFixture {
    uint256 private constant V = 3e6;
    address private constant BURNT = 0x000000000000000000000000000000000000dEaD;

    // ------------------------------------------------------------------------------------------------ convict

    function test_convict_whenTheWindowIsOpen_thenReverts() external {
        uint24 seq = _drawn(V);
        _accuse(seq, 0, 1);
        uint256 until = block.timestamp + CHALLENGE;
        vm.warp(until);
        vm.expectRevert(_error(IVerification.Verification_TooEarly.selector, until + 1));
        _convict(seq, 0, 1);
    }

    function test_convict_whenTheSegmentIsNotShown_thenReverts() external {
        uint24 seq = _drawn(V);
        _accuse(seq, 0, 1);
        skip(CHALLENGE + 1);
        Opening memory opening = _opening(seq, 0, 1);
        opening.weight += 1;
        vm.expectRevert(_error(IVerification.Verification_BadProof.selector, 1));
        module.convict(provider, INDEX, seq, 0, opening);
        opening = _opening(seq, 0, 2);
        vm.expectRevert(_error(IVerification.Verification_WrongSegment.selector, 2));
        module.convict(provider, INDEX, seq, 0, opening);
        opening.i = 1;
        vm.expectRevert(_error(IVerification.Verification_BadProof.selector, 1));
        module.convict(provider, INDEX, seq, 0, opening);
    }

    /// @dev One window a batch: the newest accusation's.
    function test_convict_whenAnotherSegmentWasAccusedSince_thenWaitsForItsWindow() external {
        uint24 seq = _drawn(V);
        _accuse(seq, 0, 0);
        skip(CHALLENGE / 2);
        _accuse(seq, 0, 1);
        uint256 until = block.timestamp + CHALLENGE;
        skip(CHALLENGE / 2 + 1);
        vm.expectRevert(_error(IVerification.Verification_TooEarly.selector, until + 1));
        _convict(seq, 0, 0);
        _contest(seq, 0, 0, VerdictResult.MATCH);
        vm.warp(until + 1);
        _convict(seq, 0, 1);
    }

    function test_convict_whenItIsTheFirst_thenReturnsThePriceAndBurnsTheFine() external {
        uint24 seq = _drawn(V);
        uint256 before = _cash(provider);
        _accuse(seq, 0, 1);
        skip(CHALLENGE + 1);
        vm.expectEmit(address(book));
        emit ILeaseBookLog.BondSlashed(_key(), 0, 10_800_000);
        vm.expectEmit(address(module));
        emit IVerification.SegmentConvicted(_key(), seq, 0, 1, 600_000, 12e6, 1_200_000); // 20 %, 20 times that, 2 times
        vm.prank(stranger);
        _convict(seq, 0, 1);
        assertEq(_cash(buyer), CASH - V - 210_000 + 600_000);
        assertEq(_bond(), BOND - 12);
        assertEq(_locked(), 9e6);
        assertEq(_batch(seq, 0).locked, 9e6);
        assertEq(_batch(seq, 0).left, V - 600_000);
        assertEq(token.balanceOf(BURNT), 10_800_000 + 2 * FEE_TO_REGISTER);
        assertEq(_cash(audits[0]), 1_200_000);
        assertEq(_cash(provider), before, "no change was left over");
        _assertState(seq, 0, BatchState.DRAWN);
        _assertAllSolvent();
    }

    function test_convict_whenTheFineIsNoWholeUnit_thenTheChangeIsTheProviders() external {
        uint24 seq = _drawn(3_000_010);
        uint256 before = _cash(provider);
        _punish(seq, 0, 1); // price 600,002, fine 12,000,040
        assertEq(_bond(), BOND - 13);
        assertEq(_locked(), 22e6 - 13e6);
        assertEq(_cash(provider) - before, 999_960);
        assertEq(token.balanceOf(BURNT), 10_800_036 + 2 * FEE_TO_REGISTER);
        _assertAllSolvent();
    }

    function test_convict_whenTheFineIsAboveTheLock_thenBurnsTheLock() external {
        uint24 seq = _drawn(V);
        _punish(seq, 0, 2); // 60 %: twenty times 1.8 is 36, locked are 21
        assertEq(_bond(), BOND - 21);
        assertEq(_locked(), 0);
        _assertAllSolvent();
        _finalizeClean(seq, 0);
        _assertState(seq, 0, BatchState.PARTIAL);
        _assertAllSolvent();
    }

    function test_convict_whenItIsTheLeasesSecond_thenForfeitsTheRest() external {
        uint24 seq = _drawn(V);
        _accuse(seq, 0, 0);
        _accuse(seq, 0, 1);
        skip(CHALLENGE + 1);
        _convict(seq, 0, 0);
        _convict(seq, 0, 1);
        uint256 before = _cash(provider);
        uint256 burntBefore = token.balanceOf(BURNT);
        assertEq(_cash(audits[0]), 2_100_000); // bounties: of 12, and of the 9 that were left of the lock
        _finalizeClean(seq, 0);
        _assertState(seq, 0, BatchState.PARTIAL);
        assertEq(_cash(provider), before);
        assertEq(token.balanceOf(BURNT) - burntBefore, 1_800_000);
        assertEq(_cash(audits[0]), 2_100_000);
        assertEq(_cash(buyer), CASH - V + 1_200_000); // two prices; the audit share of what is not paid
        assertEq(_locked(), 0);
        _assertAllSolvent();
    }

    function test_convict_whenTheFirstWasInAnotherBatchOfTheLease_thenForfeitsThisOne() external {
        uint24 seq = _openVerified();
        skip(1 hours);
        _settleAt(seq, 1e6);
        _commitBatch(seq, 0);
        _drawBatch(seq, 0);
        _settleAt(seq, 2e6);
        _commitBatch(seq, 1);
        _drawBatch(seq, 1);
        _closeAt(seq, 2e6);
        _accuse(seq, 0, 0);
        _accuse(seq, 1, 0);
        skip(CHALLENGE + 1);
        _convict(seq, 0, 0);
        _convict(seq, 1, 0);
        uint256 before = _cash(provider);
        _finalizeClean(seq, 1);
        assertEq(_cash(provider), before, "the second batch is forfeit");
        _finalizeClean(seq, 0);
        assertEq(_cash(provider), before + 780_000, "the first is not");
        _assertAllSolvent();
    }

    /// @dev Another lease's conviction in between does not make a lease forget its own.
    function test_convict_whenAnotherLeaseWasConvictedSince_thenItIsStillTheLeasesSecond() external {
        uint24 first = _drawn(V);
        uint24 second = _drawn(V);
        _accuse(first, 0, 0);
        _accuse(first, 0, 1);
        _accuse(second, 0, 0);
        skip(CHALLENGE + 1);
        _convict(first, 0, 0);
        _convict(second, 0, 0);
        _convict(first, 0, 1);
        uint256 before = _cash(provider);
        _finalizeClean(first, 0);
        assertEq(_cash(provider), before);
        _finalizeClean(second, 0);
        assertEq(_cash(provider), before + 2_340_000);
        _assertAllSolvent();
    }

    function test_convict_whenAnotherLeaseHadOne_thenItCountsAlone() external {
        uint24 first = _drawn(1e6);
        _punish(first, 0, 0);
        uint24 second = _drawn(1e6);
        _punish(second, 0, 0);
        uint256 before = _cash(provider);
        _finalizeClean(second, 0);
        assertEq(_cash(provider), before + 780_000);
    }

    // ------------------------------------------------------------------------------------------------ late

    function _unverified() private returns (uint24 seq) {
        seq = _drawn(V);
        skip(HARD_CAP);
        _finalizeUnverified(seq, 0);
    }

    function test_late_whenTheBatchEndedUnverified_thenTakesPriceAndFineFromTheFreeBond() external {
        uint24 seq = _unverified();
        assertEq(_locked(), 0);
        uint256 before = _cash(buyer);
        skip(6 days);
        _punish(seq, 0, 1);
        assertEq(_cash(buyer), before + 600_000);
        assertEq(_bond(), BOND - 13); // 0.6 + 12, the change is the provider's
        _assertState(seq, 0, BatchState.FINAL_UNVERIFIED);
        _assertAllSolvent();
    }

    function test_late_whenContested_thenNothingMoves() external {
        uint24 seq = _unverified();
        _accuse(seq, 0, 1);
        _contest(seq, 0, 1, VerdictResult.MATCH);
        assertEq(_bond(), BOND);
        _assertAllSolvent();
    }

    function test_late_whenTheWindowIsOver_thenReverts() external {
        uint24 seq = _unverified();
        uint256 closesAt = _batch(seq, 0).committedAt + HARD_CAP + LATE_SLASH;
        (, Sibling[] memory proof) = _tree(seq, 0, 1);
        Verdict memory verdict = _verdict(seq, 0, 1, VerdictResult.MISMATCH);
        vm.warp(closesAt + 1);
        bytes memory first = _signVerdict(verifier[0], verdict);
        bytes memory second = _signVerdict(verifier[1], verdict);
        vm.expectRevert(_error(IVerification.Verification_TooLate.selector, closesAt));
        module.accuse(_leaf(seq, 0, 1), proof, verdict, first, second);
    }

    /// @dev What another batch locked is not there for this one.
    function test_late_whenTheBondIsLockedElsewhere_thenTakesWhatIsFree() external {
        uint24 seq = _unverified();
        _accuse(seq, 0, 1);
        skip(CHALLENGE + 1);
        uint24 other = _openVerified();
        skip(2 hours);
        _settleAt(other, 4_500_000);
        _weigh(1, 0);
        _commitBatch(other, 0); // locks 90 of 100
        _weigh(3, 200_000);
        uint256 before = _cash(buyer);
        vm.expectEmit(address(book));
        emit ILeaseBookLog.BondSlashed(_key(), 600_000, 8_460_000);
        _convict(seq, 0, 1);
        assertEq(_cash(buyer), before + 600_000);
        assertEq(_bond(), 90);
        assertEq(_locked(), 90e6);
        _assertAllSolvent();
    }
}
