// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {INTERRUPTIBLE} from "../../../src/types/Flags.sol";
import {CloseReason, Status} from "../../../src/types/Lifecycle.sol";
import {Ask, Bid, Voucher} from "../../../src/types/Orders.sol";
import {Fixture} from "../../Fixture.sol";

contract Release is Fixture {
    uint256 private buyerBefore;
    uint256 private providerBefore;

    function setUp() public override {
        super.setUp();
        (buyerBefore, providerBefore) = (_cash(buyer), _cash(provider));
    }

    function _release(Voucher memory voucher, bytes memory signature, CloseReason reason) private {
        vm.prank(provider);
        book.release(voucher, signature, reason);
    }

    function _openInterruptible() private returns (uint24 seq) {
        (Ask memory ask, Bid memory bid) = (_ask(), _bid());
        (ask.flags, bid.flags) = (INTERRUPTIBLE, INTERRUPTIBLE);
        seq = _openWith(ask, bid);
        _begin(seq, uint32(block.timestamp));
    }

    /// @dev Rounded up; the bond falls by whole tokens and the change is the provider's cash.
    function _assertPenalised(uint256 penalty, uint256 paid) private view {
        uint256 units = (penalty + 1e6 - 1) / 1e6;
        uint256 fee = paid * FEE_BPS / 10_000;
        assertEq(book.machineOf(provider, INDEX).bond, BOND - units, "bond");
        assertEq(_cash(buyer), buyerBefore - paid + penalty, "buyer");
        assertEq(_cash(provider), providerBefore + paid - fee + units * 1e6 - penalty, "provider");
        _assertSolvent();
    }

    // ------------------------------------------------------------------------------------------------ giveNotice

    function test_giveNotice_whenNodeKeyGivesIt_thenStoresWhen() external {
        uint24 seq = _openAndBegin();
        skip(1 minutes);
        vm.expectEmit(address(book));
        emit ILeaseBookLog.NoticeGiven(_key(), seq, uint64(block.timestamp + NOTICE));
        vm.prank(nodeKey);
        book.giveNotice(provider, INDEX, seq);
        assertEq(_leaseOf(seq).noticeAt, block.timestamp);
    }

    function test_giveNotice_whenGivenBefore_thenReverts() external {
        uint24 seq = _openAndBegin();
        vm.startPrank(provider);
        book.giveNotice(provider, INDEX, seq);
        uint256 first = block.timestamp;
        skip(1 minutes);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NoticeGiven.selector, first));
        book.giveNotice(provider, INDEX, seq);
    }

    function test_giveNotice_whenCallerIsAnyoneElse_thenReverts() external {
        uint24 seq = _openAndBegin();
        address[3] memory others = [buyer, sessionKey, stranger];
        for (uint256 i; i < others.length; ++i) {
            vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotOwner.selector, others[i]));
            vm.prank(others[i]);
            book.giveNotice(provider, INDEX, seq);
        }
    }

    function test_giveNotice_whenNotActive_thenReverts() external {
        uint24 seq = _open();
        vm.startPrank(provider);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_WrongStatus.selector, Status.Funded));
        book.giveNotice(provider, INDEX, seq);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_WrongLease.selector, seq));
        book.giveNotice(provider, INDEX, seq + 1);
    }

    // ------------------------------------------------------------------------------------------------ refused

    function test_release_whenCallerIsNotTheProvider_thenReverts() external {
        uint24 seq = _openAndBegin();
        address[3] memory others = [buyer, nodeKey, stranger];
        for (uint256 i; i < others.length; ++i) {
            vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotOwner.selector, others[i]));
            vm.prank(others[i]);
            book.release(_voucher(seq, 0), "", CloseReason.RELEASED);
        }
    }

    function test_release_whenReasonIsNotAProviders_thenReverts() external {
        uint24 seq = _openAndBegin();
        for (uint8 i; i <= uint8(type(CloseReason).max); ++i) {
            CloseReason reason = CloseReason(i);
            if (reason == CloseReason.RELEASED || reason == CloseReason.NO_VOUCHERS || reason == CloseReason.HEALTH) {
                continue;
            }
            vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_BadReason.selector, reason));
            _release(_voucher(seq, 0), "", reason);
        }
    }

    function test_release_whenNotRunning_thenReverts() external {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_WrongStatus.selector, Status.Free));
        _release(_voucher(0, 0), "", CloseReason.RELEASED);
        uint24 seq = _open();
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_WrongLease.selector, seq));
        _release(_voucher(seq + 1, 0), "", CloseReason.RELEASED);
    }

    function test_release_whenVoucherIsNotTheBuyers_thenReverts() external {
        uint24 seq = _openAndBegin();
        skip(1 hours);
        Voucher memory voucher = _voucher(seq, CAP / 5);
        bytes memory forged = _signVoucher(nodeKey, voucher);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_BadSignature.selector, buyer));
        _release(voucher, forged, CloseReason.RELEASED);
    }

    // ------------------------------------------------------------------------------------------------ Funded

    function test_release_whenFunded_thenBuyerHasTheCapAndTheNoShowAmount() external {
        uint24 seq = _open();
        uint256 noShow = (CAP * NO_SHOW + DURATION - 1) / DURATION;
        vm.expectEmit(address(book));
        emit ILeaseBookLog.PenaltyPaid(_key(), seq, uint64(noShow));
        _expectClosed(seq, CloseReason.RELEASED_UNSTARTED, 0);
        _release(_voucher(seq, 0), "", CloseReason.HEALTH);
        _assertPenalised(noShow, 0);
        _assertFree(seq);
    }

    // ------------------------------------------------------------------------------------------------ Active

    function test_release_whenActive_thenPenaltyIsOfTheRest() external {
        uint24 seq = _openAndBegin();
        skip(1 hours);
        _expectClosed(seq, CloseReason.NO_VOUCHERS, 0);
        _release(_voucher(seq, 0), "", CloseReason.NO_VOUCHERS);
        _assertPenalised((CAP * PENALTY_BPS + 9999) / 10_000, 0);
        _assertFree(seq);
    }

    function test_release_whenAVoucherComesAlong_thenItIsPaidFirst() external {
        uint24 seq = _openAndBegin();
        skip(1 hours);
        Voucher memory voucher = _voucher(seq, CAP); // signed ahead: pays what has accrued
        uint256 paid = CAP / 5;
        _expectClosed(seq, CloseReason.RELEASED, paid);
        _release(voucher, _signVoucher(sessionKey, voucher), CloseReason.RELEASED);
        _assertPenalised(((CAP - paid) * PENALTY_BPS + 9999) / 10_000, paid);
    }

    function test_release_whenVoucherIsAUnitAboveWhatWasPaid_thenPaysTheUnit() external {
        uint24 seq = _openAndBegin();
        skip(DURATION);
        Voucher memory voucher = _voucher(seq, 1);
        _expectClosed(seq, CloseReason.END_OF_TIME, 1);
        _release(voucher, _signVoucher(sessionKey, voucher), CloseReason.RELEASED);
    }

    function test_release_whenNoticeHasRun_thenNoPenalty() external {
        uint24 seq = _openInterruptible();
        vm.prank(nodeKey);
        book.giveNotice(provider, INDEX, seq);
        skip(NOTICE);
        _expectClosed(seq, CloseReason.NOTICE, 0);
        _release(_voucher(seq, 0), "", CloseReason.RELEASED);
        _assertPenalised(0, 0);
    }

    function test_release_whenNoticeHasRun_thenNodeKeyMayToo() external {
        uint24 seq = _openInterruptible();
        vm.startPrank(nodeKey);
        book.giveNotice(provider, INDEX, seq);
        skip(NOTICE - 1);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotOwner.selector, nodeKey));
        book.release(_voucher(seq, 0), "", CloseReason.RELEASED);
        skip(1);
        Voucher memory voucher = _voucher(seq, CAP / 100);
        bytes memory signature = _signVoucher(sessionKey, voucher);
        _expectClosed(seq, CloseReason.NOTICE, CAP / 100);
        book.release(voucher, signature, CloseReason.RELEASED);
        vm.stopPrank();
        _assertPenalised(0, CAP / 100);
        _assertFree(seq);
    }

    function test_release_whenNoticeHasRun_thenStrangersMayNot() external {
        uint24 seq = _openInterruptible();
        vm.prank(nodeKey);
        book.giveNotice(provider, INDEX, seq);
        skip(NOTICE);
        address[3] memory others = [buyer, sessionKey, stranger];
        for (uint256 i; i < others.length; ++i) {
            vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotOwner.selector, others[i]));
            vm.prank(others[i]);
            book.release(_voucher(seq, 0), "", CloseReason.RELEASED);
        }
    }

    function test_release_whenNotInterruptibleOrStopped_thenNodeKeyMayNot() external {
        uint24 seq = _openAndBegin();
        vm.prank(nodeKey);
        book.giveNotice(provider, INDEX, seq);
        skip(NOTICE);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotOwner.selector, nodeKey));
        vm.prank(nodeKey);
        book.release(_voucher(seq, 0), "", CloseReason.RELEASED);
        _release(_voucher(seq, 0), "", CloseReason.RELEASED);
        seq = _openInterruptible();
        vm.prank(nodeKey);
        book.giveNotice(provider, INDEX, seq);
        skip(NOTICE);
        vm.prank(buyer);
        book.stop(provider, INDEX, seq);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotOwner.selector, nodeKey));
        vm.prank(nodeKey);
        book.release(_voucher(seq, 0), "", CloseReason.RELEASED);
    }

    function test_release_whenNoticeHasNotRun_thenPenalty() external {
        uint24 seq = _openInterruptible();
        vm.prank(nodeKey);
        book.giveNotice(provider, INDEX, seq);
        skip(NOTICE - 1);
        _expectClosed(seq, CloseReason.RELEASED, 0);
        _release(_voucher(seq, 0), "", CloseReason.RELEASED);
        _assertPenalised((CAP * PENALTY_BPS + 9999) / 10_000, 0);
    }

    function test_release_whenLeaseIsNotInterruptible_thenNoticeDoesNotHelp() external {
        uint24 seq = _openAndBegin();
        vm.prank(nodeKey);
        book.giveNotice(provider, INDEX, seq);
        skip(2 * NOTICE);
        _release(_voucher(seq, 0), "", CloseReason.RELEASED);
        _assertPenalised((CAP * PENALTY_BPS + 9999) / 10_000, 0);
    }

    function test_release_whenNoticeWasAnotherLeases_thenPenalty() external {
        uint24 first = _openInterruptible();
        vm.prank(nodeKey);
        book.giveNotice(provider, INDEX, first);
        skip(NOTICE);
        _release(_voucher(first, 0), "", CloseReason.RELEASED);
        uint24 second = _openInterruptible();
        assertEq(_leaseOf(second).noticeAt, 0);
        skip(NOTICE);
        _release(_voucher(second, 0), "", CloseReason.RELEASED);
        _assertPenalised((CAP * PENALTY_BPS + 9999) / 10_000, 0);
    }

    function test_release_whenAfterTheEnd_thenNoPenalty() external {
        uint24 seq = _openAndBegin();
        skip(DURATION);
        _expectClosed(seq, CloseReason.END_OF_TIME, 0);
        _release(_voucher(seq, 0), "", CloseReason.NO_VOUCHERS);
        _assertPenalised(0, 0);
    }

    // ------------------------------------------------------------------------------------------------ Stopped

    function test_release_whenStopped_thenPaysTheVoucherAndNoPenalty() external {
        uint24 seq = _openAndBegin();
        skip(1 hours);
        vm.prank(buyer);
        book.stop(provider, INDEX, seq);
        Voucher memory voucher = _voucher(seq, CAP / 10);
        _expectClosed(seq, CloseReason.STOPPED, CAP / 10);
        _release(voucher, _signVoucher(sessionKey, voucher), CloseReason.NO_VOUCHERS);
        _assertPenalised(0, CAP / 10);
    }
}
