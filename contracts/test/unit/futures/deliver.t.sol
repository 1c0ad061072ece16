// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IFutures} from "../../../src/interfaces/IFutures.sol";
import {FIRM} from "../../../src/types/Flags.sol";
import {FutureUnit, UnitEnd} from "../../../src/types/Futures.sol";
import {CloseReason, SkipCode, Status} from "../../../src/types/Lifecycle.sol";
import {Ready, Voucher} from "../../../src/types/Orders.sol";
import {Lease} from "../../../src/types/Rows.sol";
import {FuturesFixture} from "./FuturesFixture.sol";

contract Deliver is FuturesFixture {
    function test_deliver_whenASideDidNotDoItsPart_thenReverts() external {
        uint40 id = _openContract();
        _nominateIt(id, _indexes());
        vm.warp(windowStart);
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_NotReady.selector, id));
        module.deliver(id, _indexes());
    }

    function test_deliver_whenNothingWasNominated_thenReverts() external {
        uint40 id = _openContract();
        _fundIt(id);
        vm.warp(windowStart);
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_NotReady.selector, id));
        module.deliver(id, new uint32[](0));
    }

    function test_deliver_whenOutsideItsTime_thenReverts() external {
        uint40 id = _readyContract();
        vm.warp(windowStart - 1);
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_TooEarly.selector, windowStart));
        module.deliver(id, _indexes());
        vm.warp(windowStart + START + 1);
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_TooLate.selector, windowStart + START));
        module.deliver(id, _indexes());
        vm.warp(windowStart + START);
        module.deliver(id, _indexes());
    }

    function test_deliver_whenAllIsWell_thenOpensAFirmLeaseAMachine() external {
        uint40 id = _readyContract();
        uint256 before = _cash(provider);
        vm.prank(provider);
        book.pause(SECOND);
        vm.prank(guardian);
        book.pauseOpenings(1 days);
        vm.expectEmit(address(module));
        emit IFutures.FutureDelivered(id, 2, 0, 0);
        vm.prank(stranger);
        module.deliver(id, _indexes());
        for (uint32 index = INDEX; index <= SECOND; ++index) {
            Lease memory lease = book.leaseOf(provider, index, 1);
            assertEq(lease.status, Status.Funded);
            assertEq(lease.buyer, buyer);
            assertEq(lease.cap, UNIT_CAP);
            assertEq(lease.duration, WINDOW);
            assertEq(lease.flags, FIRM);
            FutureUnit memory unit = module.unitOf(provider, index, 1);
            assertEq(unit.contractId, id);
            assertEq(unit.long, buyer);
            assertEq(unit.short, provider);
            assertEq(unit.longMargin, LONG_MARGIN / 2);
            assertEq(unit.shortMargin, SHORT_MARGIN / 2);
            assertEq(unit.windowSeconds, WINDOW);
        }
        assertEq(_cash(provider), before);
        assertEq(module.contractOf(id).units, 0);
        assertEq(book.moduleCash(address(module)), LONG_MARGIN + SHORT_MARGIN);
        _assertSolventWithModule();
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_NoContract.selector, id));
        module.deliver(id, _indexes());
    }

    function test_deliver_whenAMachineCannotBeLeased_thenItsUnitIsTheLongs() external {
        uint256 before = _cash(provider);
        uint40 id = _readyContract();
        vm.prank(provider);
        book.retire(SECOND);
        vm.expectEmit(address(module));
        emit IFutures.FutureDelivered(id, 1, uint64(UNIT_CAP + LONG_MARGIN / 2 + SHORT_MARGIN / 2), 0);
        module.deliver(id, _indexes());
        assertEq(_cash(buyer), CASH - UNIT_CAP - LONG_MARGIN / 2 + SHORT_MARGIN / 2);
        assertEq(_cash(provider), before - SHORT_MARGIN);
        _assertSolventWithModule();
    }

    function test_deliver_whenAMachineIsNamedTwice_thenTheSecondIsUndelivered() external {
        uint40 id = _openContract();
        _fundIt(id);
        uint32[] memory twice = _indexes();
        twice[1] = INDEX;
        _nominateIt(id, twice);
        vm.warp(windowStart);
        vm.expectEmit(address(module));
        emit IFutures.UnitFailed(id, _key(), SkipCode.MACHINE_NOT_FREE);
        module.deliver(id, twice);
        _assertSolventWithModule();
    }

    function test_deliver_whenAUnitWasNotNamed_thenItIsTheLongs() external {
        uint40 id = _openContract();
        _fundIt(id);
        _nominateIt(id, _firstOnly());
        vm.warp(windowStart);
        module.deliver(id, _firstOnly());
        assertEq(_cash(buyer), CASH - UNIT_CAP - LONG_MARGIN / 2 + SHORT_MARGIN / 2);
        assertEq(book.machineOf(provider, SECOND).status, Status.Free);
        _assertSolventWithModule();
    }
}

contract SettleUnit is FuturesFixture {
    uint256 private constant LONG_PART = LONG_MARGIN / 2;
    uint256 private constant SHORT_PART = SHORT_MARGIN / 2;

    function _expectSettled(uint24 seq, uint256 toLong, uint256 toShort) private {
        (uint256 long, uint256 short) = (_cash(buyer), _cash(provider));
        vm.expectEmit(address(module));
        emit IFutures.UnitSettled(1, _key(), seq, uint64(toLong), uint64(toShort));
        _settleUnit(seq);
        assertEq(_cash(buyer), long + toLong);
        assertEq(_cash(provider), short + toShort);
        _assertSolventWithModule();
        assertEq(toLong + toShort, LONG_PART + SHORT_PART, "I11");
    }

    function test_settleUnit_whenNoMarginsStandBehindIt_thenReverts() external {
        uint24 seq = _openAndBegin();
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_NoUnit.selector, _key(), seq));
        _settleUnit(seq);
    }

    function test_settleUnit_whenTheLeaseHasNotEnded_thenReverts() external {
        uint24 seq = _running();
        skip(WINDOW + 1); // its time is over, nobody ended it
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_StillRunning.selector, _key(), seq));
        _settleUnit(seq);
    }

    function test_settleUnit_whenSettled_thenRevertsTheNextTime() external {
        uint24 seq = _running();
        _stop(seq);
        _settleUnit(seq);
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_NoUnit.selector, _key(), seq));
        _settleUnit(seq);
    }

    function test_settleUnit_whenTheLongStopped_thenItPaysForTheTimeLeft() external {
        uint24 seq = _running();
        skip(WINDOW / 4);
        _stop(seq);
        // At once: the lease itself may still wait for its last voucher.
        _expectSettled(seq, LONG_PART / 4, SHORT_PART + LONG_PART * 3 / 4);
        _release(seq);
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_NoUnit.selector, _key(), seq));
        _settleUnit(seq);
    }

    function test_settleUnit_whenTheLongSignedAnEarlyEnd_thenItPaysForTheTimeLeft() external {
        uint24 seq = _running();
        skip(WINDOW / 2);
        Voucher memory last = _voucher(seq, UNIT_CAP / 2);
        _close(provider, last, _signFinal(sessionKey, last), "");
        _expectSettled(seq, LONG_PART / 2, SHORT_PART + LONG_PART / 2);
    }

    function test_settleUnit_whenTheLongDidNotAccept_thenItPaysAllOfItsPart() external {
        _delivered();
        Ready memory ready = _readyOf(provider, INDEX, 1);
        book.postReady(ready, _signReady(nodeKey, ready));
        skip(START + 1);
        book.refundUnstarted(provider, INDEX, 1);
        _expectSettled(1, 0, SHORT_PART + LONG_PART);
    }

    function test_settleUnit_whenTheShortDidNotCome_thenItPaysAllOfItsPart() external {
        _delivered();
        skip(START + 1);
        book.refundUnstarted(provider, INDEX, 1);
        _expectSettled(1, LONG_PART + SHORT_PART, 0);
    }

    function test_settleUnit_whenTheShortReleasedUnstarted_thenItPaysAllOfItsPart() external {
        _delivered();
        _release(1);
        _expectSettled(1, LONG_PART + SHORT_PART, 0);
    }

    /// @dev A third of the window and a second left: 26.4 tokens * 28,801 / 86,400 = 8,800,305.5.
    function test_settleUnit_whenTheShortReleased_thenItPaysForTheTimeLeftRoundedDown() external {
        uint24 seq = _running();
        skip(WINDOW * 2 / 3 - 1);
        _release(seq);
        _expectSettled(seq, LONG_PART + 8_800_305, SHORT_PART - 8_800_305);
        assertEq(SHORT_PART, 26.4e6);
    }

    function test_settleUnit_whenItWasHeldToTheEnd_thenEachHasItsOwnBack() external {
        uint24 seq = _running();
        skip(WINDOW);
        Voucher memory last = _voucher(seq, UNIT_CAP);
        _close(provider, last, _signVoucher(sessionKey, last), "");
        FutureUnit memory unit = module.unitOf(provider, INDEX, seq);
        assertEq(uint8(unit.end), uint8(UnitEnd.HELD));
        assertEq(unit.left, 0);
        _expectSettled(seq, LONG_PART, SHORT_PART);
    }

    function test_settleUnit_whenItExpired_thenEachHasItsOwnBack() external {
        uint24 seq = _running();
        skip(WINDOW + CLAIM + 1);
        book.expire(provider, INDEX, seq);
        _expectSettled(seq, LONG_PART, SHORT_PART);
    }

    function test_settleUnit_whenTheMachineWorksOnUnderANewLease_thenTheOldMarginsAreStillThere() external {
        uint24 seq = _running();
        skip(WINDOW / 4);
        _stop(seq);
        _release(seq);
        assertEq(_open(), seq + 1);
        uint256 before = _cash(buyer);
        _settleUnit(seq);
        assertEq(_cash(buyer), before + LONG_PART / 4);
    }

    /// @dev Whatever LeaseBook says, it is written down: no end of a lease can fail here.
    function testFuzz_leaseEnded_whenLeaseBookTells_thenNeverReverts(uint24 seq, uint8 reason, uint24 left) external {
        vm.prank(address(book));
        module.leaseEnded(_key(), seq, CloseReason(reason % 10), left);
    }

    function test_leaseEnded_whenAnotherCalls_thenReverts() external {
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_NotOwner.selector, buyer));
        vm.prank(buyer);
        module.leaseEnded(_key(), 1, CloseReason.RELEASED, 5);
    }
}
