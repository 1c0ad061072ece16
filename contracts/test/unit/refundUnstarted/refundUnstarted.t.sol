// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {CloseReason, Status} from "../../../src/types/Lifecycle.sol";
import {Ask, Bid, Ready} from "../../../src/types/Orders.sol";
import {Fixture} from "../../Fixture.sol";

contract RefundUnstarted is Fixture {
    uint256 private constant AMOUNT = (CAP * NO_SHOW + DURATION - 1) / DURATION;

    function _refund(uint24 seq) private {
        vm.prank(stranger);
        book.refundUnstarted(provider, INDEX, seq);
    }

    function _postReady(uint24 seq) private {
        Ready memory ready = _readyOf(provider, INDEX, seq);
        book.postReady(ready, _signReady(nodeKey, ready));
    }

    function test_refundUnstarted_whenNotFunded_thenReverts() external {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_WrongStatus.selector, Status.Free));
        _refund(0);
        uint24 seq = _openAndBegin();
        skip(START + 1);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_WrongStatus.selector, Status.Active));
        _refund(seq);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_WrongLease.selector, seq));
        _refund(seq + 1);
    }

    function test_refundUnstarted_whenDeadlineHasNotPassed_thenReverts() external {
        uint24 seq = _open();
        uint256 opensAt = block.timestamp + START + 1;
        skip(START);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_TooEarly.selector, opensAt));
        _refund(seq);
        skip(1);
        _refund(seq);
        _assertFree(seq);
    }

    function test_refundUnstarted_whenReadyIsOnChain_thenBuyerPaysTheNoShowAmount() external {
        (uint256 buyerBefore, uint256 providerBefore) = (_cash(buyer), _cash(provider));
        uint256 marketBefore = _cash(matcher);
        uint24 seq = _open();
        _postReady(seq);
        skip(START + 1);
        _expectClosed(seq, CloseReason.BUYER_NO_SHOW, AMOUNT);
        _refund(seq);
        assertEq(_cash(buyer), buyerBefore - AMOUNT);
        assertEq(_cash(provider), providerBefore + AMOUNT);
        assertEq(_cash(matcher), marketBefore);
        assertEq(book.machineOf(provider, INDEX).bond, BOND);
        _assertFree(seq);
        _assertSolvent();
    }

    function test_refundUnstarted_whenReadyIsMissing_thenBondPaysTheNoShowAmount() external {
        (uint256 buyerBefore, uint256 providerBefore) = (_cash(buyer), _cash(provider));
        uint24 seq = _open();
        skip(START + 1);
        vm.expectEmit(address(book));
        emit ILeaseBookLog.PenaltyPaid(_key(), seq, uint64(AMOUNT));
        _expectClosed(seq, CloseReason.PROVIDER_NO_SHOW, 0);
        _refund(seq);
        assertEq(_cash(buyer), buyerBefore + AMOUNT);
        assertEq(_cash(provider), providerBefore + 1e6 - AMOUNT); // AMOUNT is below one token: the change comes back
        assertEq(book.machineOf(provider, INDEX).bond, BOND - 1);
        _assertFree(seq);
        _assertSolvent();
    }

    function test_refundUnstarted_whenLeaseIsShorterThanTheWindow_thenAmountIsTheCap() external {
        (Ask memory ask, Bid memory bid) = (_ask(), _bid());
        (ask.minDuration, bid.duration) = (1, uint24(NO_SHOW - 1));
        uint256 before = _cash(provider);
        uint24 seq = _openWith(ask, bid);
        uint256 cap = _leaseOf(seq).cap;
        _postReady(seq);
        skip(START + 1);
        _refund(seq);
        assertEq(_cash(provider), before + cap);
    }

    function test_refundUnstarted_whenBondIsSmallerThanTheAmount_thenTakesAllOfIt() external {
        vm.prank(provider);
        book.addMachine(8, 1, product);
        (Ask memory ask, Bid memory bid) = (_askFrom(provider, 8), _bid());
        (ask.minDuration, bid.duration, bid.maxPricePerHour) = (1, uint24(NO_SHOW), 30e6);
        uint256 before = _cash(buyer);
        _submit(matcher, 30e6, _paired(ask, bid)); // cap and no-show amount 5 tokens, bond 1
        skip(START + 1);
        book.refundUnstarted(provider, 8, 1);
        assertEq(_cash(buyer), before + 1e6);
        assertEq(book.machineOf(provider, 8).bond, 0);
        assertEq(book.machineOf(provider, 8).status, Status.Free);
    }
}
