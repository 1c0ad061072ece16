// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {CloseReason, SkipCode, Status} from "../../../src/types/Lifecycle.sol";
import {Voucher} from "../../../src/types/Orders.sol";
import {Fixture} from "../../Fixture.sol";

contract CloseBatch is Fixture {
    uint24 private seq;
    uint256 private buyerBefore;
    uint256 private providerBefore;

    function setUp() public override {
        super.setUp();
        (buyerBefore, providerBefore) = (_cash(buyer), _cash(provider));
        seq = _openAndBegin();
    }

    function _assertCloses(
        address sender,
        Voucher memory voucher,
        bytes memory buyerSig,
        bytes memory providerSig,
        CloseReason reason,
        uint256 paid
    ) private {
        _expectClosed(seq, reason, paid);
        _close(sender, voucher, buyerSig, providerSig);
        _assertFree(seq);
        assertEq(_cash(buyer), buyerBefore - paid);
        assertEq(_cash(provider) + _cash(matcher) - (CASH - 2 * FEE_TO_REGISTER), providerBefore + paid);
        assertEq(_leaseOf(seq).status, Status.None);
        _assertSolvent();
    }

    function _assertSkip(
        address sender,
        Voucher memory voucher,
        bytes memory buyerSig,
        bytes memory providerSig,
        SkipCode code
    ) private {
        (uint256 buyerCash, uint256 providerCash) = (_cash(buyer), _cash(provider));
        _expectSkip(0, code);
        _close(sender, voucher, buyerSig, providerSig);
        assertEq(_cash(buyer), buyerCash);
        assertEq(_cash(provider), providerCash);
    }

    function test_closeBatch_whenLengthsDiffer_thenReverts() external {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_LengthMismatch.selector, 1, 0));
        book.closeBatch(new Voucher[](1), new bytes[](0), new bytes[](1));
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_LengthMismatch.selector, 1, 2));
        book.closeBatch(new Voucher[](1), new bytes[](1), new bytes[](2));
    }

    function test_closeBatch_whenForAnotherLease_thenSkips() external {
        skip(DURATION);
        Voucher memory voucher = _voucher(seq + 1, CAP);
        _assertSkip(nodeKey, voucher, _signVoucher(buyer, voucher), "", SkipCode.WRONG_STATE);
    }

    function test_closeBatch_whenClosedAlready_thenSkips() external {
        skip(DURATION);
        Voucher memory voucher = _voucher(seq, CAP);
        _close(nodeKey, voucher, _signVoucher(buyer, voucher), "");
        _assertSkip(nodeKey, voucher, _signVoucher(buyer, voucher), "", SkipCode.WRONG_STATE);
    }

    // ------------------------------------------------------------------------------------------------ running

    function test_closeBatch_whenRunningAndBuyerSignedAVoucherOnly_thenSkips() external {
        skip(1 hours);
        Voucher memory voucher = _voucher(seq, CAP / 5);
        bytes memory signature = _signVoucher(sessionKey, voucher);
        _assertSkip(nodeKey, voucher, signature, "", SkipCode.STILL_RUNNING);
        _assertSkip(provider, voucher, signature, "", SkipCode.STILL_RUNNING);
        _assertSkip(stranger, voucher, signature, _signFinal(nodeKey, voucher), SkipCode.STILL_RUNNING);
    }

    function test_closeBatch_whenRunningAndBothSignedAFinal_thenClosesAsStopped() external {
        skip(1 hours);
        Voucher memory voucher = _voucher(seq, CAP / 10);
        bytes memory mine = _signFinal(sessionKey, voucher);
        bytes memory theirs = _signFinal(nodeKey, voucher);
        _assertCloses(stranger, voucher, mine, theirs, CloseReason.STOPPED, CAP / 10);
    }

    function test_closeBatch_whenRunningAndProviderDoesNotAgree_thenSkips() external {
        skip(1 hours);
        Voucher memory voucher = _voucher(seq, 1);
        bytes memory mine = _signFinal(buyer, voucher);
        _assertSkip(buyer, voucher, mine, "", SkipCode.BAD_FINAL_SIGNATURE);
        _assertSkip(buyer, voucher, mine, _signFinal(sessionKey, voucher), SkipCode.BAD_FINAL_SIGNATURE);
        _assertSkip(buyer, voucher, mine, _signVoucher(nodeKey, voucher), SkipCode.BAD_FINAL_SIGNATURE);
        _assertSkip(buyer, voucher, mine, _signFinal(nodeKey, _voucher(seq, 2)), SkipCode.BAD_FINAL_SIGNATURE);
    }

    function test_closeBatch_whenRunningAndFinalIsAboveTheAccrued_thenPaysTheAccrued() external {
        skip(1 hours);
        Voucher memory voucher = _voucher(seq, CAP);
        bytes memory mine = _signFinal(buyer, voucher);
        _assertCloses(nodeKey, voucher, mine, "", CloseReason.STOPPED, CAP / 5);
    }

    // ------------------------------------------------------------------------------------------------ stopped

    function test_closeBatch_whenStopped_thenPaysUpToTheFrozenCeiling() external {
        skip(1 hours);
        vm.prank(buyer);
        book.stop(provider, INDEX, seq);
        skip(10 hours);
        Voucher memory voucher = _voucher(seq, CAP);
        // The frozen ceiling is the cap now: nothing of the provider is needed.
        _assertCloses(stranger, voucher, _signVoucher(sessionKey, voucher), "", CloseReason.STOPPED, CAP / 5);
    }

    function test_closeBatch_whenStoppedAndBuyerSignedAFinal_thenCloses() external {
        skip(1 hours);
        Voucher memory voucher = _voucher(seq, CAP / 6);
        bytes memory mine = _signFinal(sessionKey, voucher);
        vm.prank(buyer);
        book.stop(provider, INDEX, seq);
        _assertCloses(nodeKey, voucher, mine, "", CloseReason.STOPPED, CAP / 6);
    }

    // ------------------------------------------------------------------------------------------------ ended

    function test_closeBatch_whenVoucherPaysTheCap_thenNeedsNothingOfTheProvider() external {
        skip(DURATION);
        Voucher memory voucher = _voucher(seq, CAP);
        _assertCloses(stranger, voucher, _signVoucher(sessionKey, voucher), "", CloseReason.END_OF_TIME, CAP);
    }

    function test_closeBatch_whenProviderOrItsKeySends_thenCloses() external {
        skip(DURATION);
        Voucher memory voucher = _voucher(seq, CAP - 1);
        bytes memory signature = _signVoucher(buyer, voucher);
        uint256 snapshot = vm.snapshotState();
        _assertCloses(provider, voucher, signature, "", CloseReason.END_OF_TIME, CAP - 1);
        vm.revertToState(snapshot);
        _assertCloses(nodeKey, voucher, signature, "", CloseReason.END_OF_TIME, CAP - 1);
    }

    function test_closeBatch_whenProviderSignedAFinal_thenClosesWhoeverSends() external {
        skip(DURATION);
        Voucher memory voucher = _voucher(seq, CAP / 2);
        bytes memory signature = _signVoucher(sessionKey, voucher);
        uint256 snapshot = vm.snapshotState();
        bytes memory final_ = _signFinal(provider, voucher);
        _assertCloses(stranger, voucher, signature, final_, CloseReason.END_OF_TIME, CAP / 2);
        vm.revertToState(snapshot);
        final_ = _signFinal(nodeKey, voucher);
        _assertCloses(buyer, voucher, signature, final_, CloseReason.END_OF_TIME, CAP / 2);
    }

    function test_closeBatch_whenProviderDoesNotAgree_thenSkips() external {
        skip(DURATION);
        Voucher memory voucher = _voucher(seq, CAP - 1);
        bytes memory signature = _signVoucher(buyer, voucher);
        _assertSkip(buyer, voucher, signature, "", SkipCode.BAD_FINAL_SIGNATURE);
        _assertSkip(matcher, voucher, signature, "", SkipCode.BAD_FINAL_SIGNATURE);
        _assertSkip(sessionKey, voucher, signature, _signFinal(stranger, voucher), SkipCode.BAD_FINAL_SIGNATURE);
    }

    function test_closeBatch_whenVoucherIsBelowWhatWasPaid_thenTakesNothingBack() external {
        skip(1 hours);
        Voucher memory voucher = _voucher(seq, CAP / 5);
        _settle(voucher, _signVoucher(buyer, voucher));
        skip(DURATION);
        voucher = _voucher(seq, 1);
        _assertCloses(nodeKey, voucher, _signVoucher(buyer, voucher), "", CloseReason.END_OF_TIME, CAP / 5);
    }

    function test_closeBatch_whenBuyerDidNotSign_thenSkips() external {
        skip(DURATION);
        Voucher memory voucher = _voucher(seq, CAP);
        address[3] memory others = [provider, nodeKey, stranger];
        for (uint256 i; i < others.length; ++i) {
            bytes memory signature = _signVoucher(others[i], voucher);
            _assertSkip(provider, voucher, signature, "", SkipCode.BAD_VOUCHER_SIGNATURE);
        }
    }
}
