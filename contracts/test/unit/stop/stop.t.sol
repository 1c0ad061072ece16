// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {CloseReason, Status} from "../../../src/types/Lifecycle.sol";
import {Voucher} from "../../../src/types/Orders.sol";
import {Lease} from "../../../src/types/Rows.sol";
import {Fixture} from "../../Fixture.sol";

contract Stop is Fixture {
    uint24 private seq;
    uint256 private buyerBefore;

    function setUp() public override {
        super.setUp();
        buyerBefore = _cash(buyer);
        seq = _openAndBegin();
    }

    function _stop() private {
        vm.prank(buyer);
        book.stop(provider, INDEX, seq);
    }

    function test_stop_whenBeforeTheEnd_thenFreezesTheAccruedAndReturnsTheRest() external {
        skip(1 hours);
        vm.expectEmit(address(book));
        emit ILeaseBookLog.LeaseStopped(_key(), seq, uint48(CAP / 5));
        _stop();
        assertEq(_cash(buyer), buyerBefore - CAP / 5);
        skip(10 hours);
        Lease memory lease = _leaseOf(seq);
        assertEq(lease.status, Status.Stopped);
        assertEq(lease.ceiling, CAP / 5);
        assertEq(lease.cap, CAP / 5);
        _assertSolvent();
    }

    function test_stop_whenInTheFirstSecond_thenReturnsAll() external {
        _stop();
        assertEq(_cash(buyer), buyerBefore);
        assertEq(_leaseOf(seq).ceiling, 0);
    }

    function test_stop_whenAfterTheEnd_thenFreezesTheWholeCap() external {
        skip(DURATION + 1);
        _stop();
        assertEq(_cash(buyer), buyerBefore - CAP);
        assertEq(_leaseOf(seq).ceiling, CAP);
    }

    function test_stop_whenCallerIsNotTheBuyer_thenReverts() external {
        address[4] memory others = [provider, sessionKey, nodeKey, stranger];
        for (uint256 i; i < others.length; ++i) {
            vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotOwner.selector, others[i]));
            vm.prank(others[i]);
            book.stop(provider, INDEX, seq);
        }
    }

    function test_stop_whenNotActiveOrNotTheNewest_thenReverts() external {
        vm.startPrank(buyer);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_WrongLease.selector, seq));
        book.stop(provider, INDEX, seq - 1);
        book.stop(provider, INDEX, seq);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_WrongStatus.selector, Status.Stopped));
        book.stop(provider, INDEX, seq);
    }

    // ------------------------------------------------------------------------------------------------ expire

    function _expire() private {
        vm.prank(stranger);
        book.expire(provider, INDEX, seq);
    }

    function test_expire_whenClaimWindowHasPassedSinceTheEnd_thenReturnsTheRest() external {
        skip(1 hours);
        Voucher memory voucher = _voucher(seq, CAP / 5);
        _settle(voucher, _signVoucher(sessionKey, voucher));
        uint256 opensAt = block.timestamp + DURATION - 1 hours + CLAIM + 1;
        vm.warp(opensAt - 1);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_TooEarly.selector, opensAt));
        _expire();
        vm.warp(opensAt);
        _expectClosed(seq, CloseReason.EXPIRED, CAP / 5);
        _expire();
        assertEq(_cash(buyer), buyerBefore - CAP / 5);
        _assertFree(seq);
        _assertSolvent();
    }

    function test_expire_whenClaimWindowHasPassedSinceTheStop_thenReturnsTheFrozenRest() external {
        skip(1 hours);
        _stop();
        uint256 opensAt = block.timestamp + CLAIM + 1;
        vm.warp(opensAt - 1);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_TooEarly.selector, opensAt));
        _expire();
        vm.warp(opensAt);
        _expire();
        assertEq(_cash(buyer), buyerBefore);
        _assertFree(seq);
    }

    function test_expire_whenNotRunning_thenReverts() external {
        skip(DURATION + CLAIM + 1);
        _expire();
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_WrongStatus.selector, Status.Free));
        _expire();
        uint24 next = _open();
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_WrongLease.selector, next));
        _expire();
    }
}
