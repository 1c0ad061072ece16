// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IFutures} from "../../../src/interfaces/IFutures.sol";
import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {Assignment, ContractEnd} from "../../../src/types/Futures.sol";
import {FuturesFixture} from "./FuturesFixture.sol";

contract Assign is FuturesFixture {
    function _refused(Assignment memory value, bytes memory error_) private {
        bytes memory signature = _signAssignment(joiner, value);
        vm.expectRevert(error_);
        vm.prank(value.leaver);
        module.assign(value, signature);
    }

    function _assign(Assignment memory value) private {
        bytes memory signature = _signAssignment(joiner, value);
        vm.prank(value.leaver);
        module.assign(value, signature);
    }

    function test_assign_whenThereIsNoContract_thenReverts() external {
        _refused(_assignment(3, true, buyer), abi.encodeWithSelector(IFutures.Futures_NoContract.selector, 3));
    }

    function test_assign_whenTheDeadlineHasPassed_thenReverts() external {
        uint40 id = _openContract();
        vm.warp(windowStart - LEAD + 1);
        bytes memory error_ = abi.encodeWithSelector(IFutures.Futures_TooLate.selector, windowStart - LEAD);
        _refused(_assignment(id, true, buyer), error_);
    }

    function test_assign_whenTheSideDidItsPart_thenReverts() external {
        uint40 id = _openContract();
        _fundIt(id);
        _nominateIt(id, _indexes());
        bytes memory error_ = abi.encodeWithSelector(IFutures.Futures_AlreadyDone.selector, id);
        _refused(_assignment(id, true, buyer), error_);
        _refused(_assignment(id, false, provider), error_);
    }

    function test_assign_whenTheCallerDoesNotHoldTheSide_thenReverts() external {
        uint40 id = _openContract();
        _refused(_assignment(id, false, buyer), abi.encodeWithSelector(IFutures.Futures_NotOwner.selector, buyer));
        Assignment memory value = _assignment(id, true, buyer);
        bytes memory signature = _signAssignment(joiner, value);
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_NotOwner.selector, joiner));
        vm.prank(joiner);
        module.assign(value, signature);
    }

    function test_assign_whenTheJoinerIsASideOrNoAccount_thenReverts() external {
        uint40 id = _openContract();
        Assignment memory value = _assignment(id, true, buyer);
        address[3] memory bad = [buyer, provider, stranger];
        for (uint256 i; i < 3; ++i) {
            value.joiner = bad[i];
            _refused(value, abi.encodeWithSelector(IFutures.Futures_BadAssignment.selector, buyer, bad[i]));
        }
    }

    function test_assign_whenTheJoinersWordExpired_thenReverts() external {
        uint40 id = _openContract();
        Assignment memory value = _assignment(id, true, buyer);
        vm.warp(value.expiry + 1);
        _refused(value, abi.encodeWithSelector(IFutures.Futures_TooLate.selector, value.expiry));
    }

    function test_assign_whenAnotherSigned_thenReverts() external {
        uint40 id = _openContract();
        Assignment memory value = _assignment(id, true, buyer);
        bytes memory signature = _signAssignment(buyer, value);
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_BadSignature.selector, joiner));
        vm.prank(buyer);
        module.assign(value, signature);
    }

    function test_assign_whenTheJoinerCancelledIt_thenReverts() external {
        uint40 id = _openContract();
        Assignment memory value = _assignment(id, true, buyer);
        vm.prank(joiner);
        book.cancelOne(value.nonce);
        _refused(value, abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NonceUnusable.selector, value.nonce));
    }

    function test_assign_whenTheLongLeaves_thenMarginsSwapAndTheJoinerPays() external {
        uint40 id = _openContract();
        Assignment memory value = _assignment(id, true, buyer);
        value.joinerPays = 7e6;
        _assign(value);
        assertEq(module.contractOf(id).long, joiner);
        assertEq(_cash(buyer), CASH + 7e6);
        assertEq(_cash(joiner), CASH - LONG_MARGIN - 7e6);
        _assertSolventWithModule();
    }

    function test_assign_whenTheShortLeaves_thenMarginsSwapAndTheLeaverPays() external {
        uint40 id = _openContract();
        uint256 before = _cash(provider);
        Assignment memory value = _assignment(id, false, provider);
        value.leaverPays = 5e6;
        _assign(value);
        assertEq(module.contractOf(id).short, joiner);
        assertEq(_cash(provider), before + SHORT_MARGIN - 5e6);
        assertEq(_cash(joiner), CASH - SHORT_MARGIN + 5e6);
        _assertSolventWithModule();
    }
}

contract FundAndNominate is FuturesFixture {
    function test_fund_whenAnotherCalls_thenReverts() external {
        uint40 id = _openContract();
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_NotOwner.selector, provider));
        vm.prank(provider);
        module.fund(id);
    }

    function test_fund_whenDoneOrTooLate_thenReverts() external {
        uint40 id = _openContract();
        uint40 late = _openContract();
        _fundIt(id);
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_AlreadyDone.selector, id));
        _fundIt(id);
        vm.warp(windowStart - LEAD + 1);
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_TooLate.selector, windowStart - LEAD));
        _fundIt(late);
    }

    function test_fund_whenTheCashIsTooLow_thenReverts() external {
        uint40 id = _openContract();
        uint64 out = uint64(_cash(buyer) - 2 * UNIT_CAP + 1);
        vm.prank(buyer);
        book.withdraw(out);
        vm.expectRevert(
            abi.encodeWithSelector(ILeaseBookLog.LeaseBook_CashTooLow.selector, 2 * UNIT_CAP - 1, 2 * UNIT_CAP)
        );
        _fundIt(id);
    }

    /// @dev At the deadline it is still possible, to the second.
    function test_fund_whenAllIsWell_thenThePriceIsLocked() external {
        uint40 id = _openContract();
        vm.warp(windowStart - LEAD);
        _fundIt(id);
        assertTrue(module.contractOf(id).funded);
        assertEq(_cash(buyer), CASH - LONG_MARGIN - 2 * UNIT_CAP);
        _assertSolventWithModule();
    }

    function test_nominate_whenAnotherCallsOrTooLate_thenReverts() external {
        uint40 id = _openContract();
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_NotOwner.selector, nodeKey));
        vm.prank(nodeKey);
        module.nominate(id, _indexes());
        vm.warp(windowStart - LEAD + 1);
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_TooLate.selector, windowStart - LEAD));
        _nominateIt(id, _indexes());
    }

    function test_nominate_whenTheNumberIsOutOfRange_thenReverts() external {
        uint40 id = _openContract();
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_WrongCount.selector, 0, UNITS));
        _nominateIt(id, new uint32[](0));
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_WrongCount.selector, 3, UNITS));
        _nominateIt(id, new uint32[](3));
    }

    function test_nominate_whenAMachineIsOfAnotherProduct_thenReverts() external {
        uint40 id = _openContract();
        uint32 other = _registerProduct(_product());
        vm.prank(provider);
        book.addMachine(9, BOND, other);
        uint32[] memory indexes = _indexes();
        indexes[1] = 9;
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_WrongMachine.selector, 9));
        _nominateIt(id, indexes);
        indexes[1] = 99; // no machine at all
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_WrongMachine.selector, 99));
        _nominateIt(id, indexes);
    }

    function test_nominate_whenAgain_thenReplacesWhatWasNamed() external {
        uint40 id = _openContract();
        _fundIt(id);
        _nominateIt(id, _firstOnly());
        assertTrue(module.contractOf(id).nominated);
        _nominateIt(id, _indexes());
        vm.warp(windowStart);
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_NotNominated.selector, id));
        module.deliver(id, _firstOnly());
        module.deliver(id, _indexes());
    }
}

contract EndsWithoutDelivery is FuturesFixture {
    function _expectEnd(uint40 id, ContractEnd end, uint256 toLong, uint256 toShort) private {
        vm.expectEmit(address(module));
        emit IFutures.FutureEnded(id, end, uint64(toLong), uint64(toShort));
    }

    function _assertGone(uint40 id) private {
        assertEq(module.contractOf(id).units, 0);
        assertEq(book.moduleCash(address(module)), 0);
        _assertSolventWithModule();
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_NoContract.selector, id));
        module.settleDefault(id);
    }

    function test_settleDefault_whenTooEarly_thenReverts() external {
        uint40 id = _openContract();
        vm.warp(windowStart - LEAD);
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_TooEarly.selector, windowStart - LEAD + 1));
        module.settleDefault(id);
    }

    function test_settleDefault_whenBothDidTheirPart_thenReverts() external {
        uint40 id = _readyContract();
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_NoDefault.selector, id));
        module.settleDefault(id);
    }

    function test_settleDefault_whenTheLongDidNotFund_thenItsMarginIsTheShorts() external {
        uint256 before = _cash(provider);
        uint40 id = _openContract();
        _nominateIt(id, _indexes());
        vm.warp(windowStart - LEAD + 1);
        _expectEnd(id, ContractEnd.LONG_DEFAULT, 0, LONG_MARGIN + SHORT_MARGIN);
        vm.prank(stranger);
        module.settleDefault(id);
        assertEq(_cash(buyer), CASH - LONG_MARGIN);
        assertEq(_cash(provider), before + LONG_MARGIN);
        _assertGone(id);
    }

    function test_settleDefault_whenNothingWasNominated_thenItsMarginIsTheLongs() external {
        uint256 before = _cash(provider);
        uint40 id = _openContract();
        _fundIt(id);
        vm.warp(windowStart - LEAD + 1);
        _expectEnd(id, ContractEnd.SHORT_DEFAULT, LONG_MARGIN + SHORT_MARGIN + 2 * UNIT_CAP, 0);
        vm.prank(stranger);
        module.settleDefault(id);
        assertEq(_cash(buyer), CASH + SHORT_MARGIN);
        assertEq(_cash(provider), before - SHORT_MARGIN);
        _assertGone(id);
    }

    function test_settleDefault_whenNeitherDidItsPart_thenBothHaveTheirOwnBack() external {
        uint256 before = _cash(provider);
        uint40 id = _openContract();
        vm.warp(windowStart + 30 days); // however late
        _expectEnd(id, ContractEnd.BOTH_DEFAULT, LONG_MARGIN, SHORT_MARGIN);
        module.settleDefault(id);
        assertEq(_cash(buyer), CASH);
        assertEq(_cash(provider), before);
        _assertGone(id);
    }

    function test_lapse_whenASideDidNotDoItsPart_thenReverts() external {
        uint40 id = _openContract();
        _fundIt(id);
        vm.warp(windowStart + START + 1);
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_NotReady.selector, id));
        module.lapse(id);
    }

    function test_lapse_whenItCanStillBeDelivered_thenReverts() external {
        uint40 id = _readyContract();
        vm.warp(windowStart + START);
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_TooEarly.selector, windowStart + START + 1));
        module.lapse(id);
    }

    function test_lapse_whenNobodyDelivered_thenAllIsGivenBack() external {
        uint256 before = _cash(provider);
        uint40 id = _readyContract();
        vm.warp(windowStart + START + 1);
        _expectEnd(id, ContractEnd.LAPSED, LONG_MARGIN + 2 * UNIT_CAP, SHORT_MARGIN);
        vm.prank(stranger);
        module.lapse(id);
        assertEq(_cash(buyer), CASH);
        assertEq(_cash(provider), before);
        _assertGone(id);
    }
}
