// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {Voucher} from "../../../src/types/Orders.sol";
import {Fixture} from "../../Fixture.sol";

contract Guardian is Fixture {
    function _pause(uint32 duration) private {
        vm.prank(guardian);
        book.pauseOpenings(duration);
    }

    function test_pauseOpenings_whenGuardianCalls_thenStopsOpeningsAndDepositsForAWhile() external {
        uint32 until = uint32(block.timestamp + 7 days);
        vm.expectEmit(address(book));
        emit ILeaseBookLog.Paused(until);
        _pause(7 days);
        assertEq(book.pausedUntil(), until);
        token.mint(buyer, 1);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_OpeningsPaused.selector, until));
        vm.prank(buyer);
        book.deposit(buyer, 1);
        vm.warp(until);
        vm.prank(buyer);
        book.deposit(buyer, 1);
        _open();
    }

    function test_pauseOpenings_whenAnyoneElseCalls_thenReverts() external {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NotOwner.selector, matcher));
        vm.prank(matcher);
        book.pauseOpenings(1);
    }

    function test_pauseOpenings_whenLongerThanSevenDays_thenReverts() external {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_BadWindow.selector, bytes32("pause"), 604_801));
        _pause(604_801);
    }

    function test_pauseOpenings_whenTwiceInThirtyDays_thenReverts() external {
        uint256 start = block.timestamp;
        _pause(1 days);
        vm.warp(start + 30 days - 1);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_TooEarly.selector, start + 30 days));
        _pause(1 days);
        vm.warp(start + 30 days);
        _pause(1 days);
    }

    /// @dev A pause is no trap: everything that was open settles, closes and leaves.
    function test_pauseOpenings_whenPaused_thenLeasesSettleCloseAndCashLeaves() external {
        uint24 seq = _openAndBegin();
        _pause(7 days);
        skip(1 hours);
        Voucher memory voucher = _voucher(seq, CAP / 5);
        _settle(voucher, _signVoucher(buyer, voucher));
        vm.prank(buyer);
        book.stop(provider, INDEX, seq);
        _close(provider, voucher, _signVoucher(buyer, voucher), "");
        _assertFree(seq);
        uint64 cash = uint64(_cash(provider));
        vm.startPrank(provider);
        book.withdraw(cash);
        book.retire(INDEX);
    }
}
