// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {CloseReason, Status} from "../../../src/types/Lifecycle.sol";
import {MachineKey} from "../../../src/types/MachineKey.sol";
import {Ready, Voucher} from "../../../src/types/Orders.sol";
import {FirmEar} from "../../mocks/Modules.sol";
import {StubbedModules} from "./modules.t.sol";

contract FirmEnds is StubbedModules {
    function _assertTold(uint24 seq, CloseReason reason, uint256 left) private view {
        assertEq(ear.count(), 1, "told once");
        FirmEar.Told memory told = ear.newest();
        assertEq(MachineKey.unwrap(told.machineKey), MachineKey.unwrap(_key()));
        assertEq(told.seq, seq);
        assertEq(uint8(told.reason), uint8(reason));
        assertEq(told.left, left);
    }

    function _stop(uint24 seq) private {
        vm.prank(buyer);
        book.stop(provider, INDEX, seq);
    }

    function _release(uint24 seq, CloseReason reason) private {
        vm.prank(provider);
        book.release(_voucher(seq, 0), "", reason);
    }

    /// @dev Neither bond nor cash but the cap moved: margins are the module's business.
    function _assertNothingFined(uint256 paid) private view {
        assertEq(book.machineOf(provider, INDEX).bond, BOND);
        assertEq(_cash(buyer), CASH - paid);
        assertEq(_cash(provider), CASH - uint256(BOND) * 1e6 + paid);
    }

    function test_firm_whenStopped_thenTellsWhatIsLeft() external {
        uint24 seq = _beginFirm();
        skip(1 hours);
        _stop(seq);
        _assertTold(seq, CloseReason.STOPPED, DURATION - 1 hours);
    }

    function test_firm_whenStoppedAfterTheEnd_thenNothingIsLeft() external {
        uint24 seq = _beginFirm();
        skip(DURATION + 5);
        _stop(seq);
        _assertTold(seq, CloseReason.STOPPED, 0);
    }

    function test_firm_whenAStoppedOneIsReleased_thenTellsNothingMore() external {
        uint24 seq = _beginFirm();
        skip(1 hours);
        _stop(seq);
        _release(seq, CloseReason.RELEASED);
        _assertTold(seq, CloseReason.STOPPED, DURATION - 1 hours);
        _assertNothingFined(0);
    }

    function test_firm_whenAStoppedOneIsClosedOrExpires_thenTellsNothingMore() external {
        uint24 seq = _beginFirm();
        skip(1 hours);
        _stop(seq);
        uint256 before = vm.snapshotState();
        Voucher memory voucher = _voucher(seq, CAP / 5);
        _close(provider, voucher, _signVoucher(sessionKey, voucher), "");
        _assertTold(seq, CloseReason.STOPPED, DURATION - 1 hours);
        _assertNothingFined(CAP / 5);
        assertTrue(vm.revertToState(before));
        skip(CLAIM + 1);
        book.expire(provider, INDEX, seq);
        _assertTold(seq, CloseReason.STOPPED, DURATION - 1 hours);
    }

    function test_firm_whenClosedEarlyByTheBuyersFinal_thenTellsWhatIsLeft() external {
        uint24 seq = _beginFirm();
        skip(2 hours);
        Voucher memory last = _voucher(seq, 2 * CAP / 5);
        _close(provider, last, _signFinal(sessionKey, last), "");
        _assertTold(seq, CloseReason.STOPPED, DURATION - 2 hours);
        _assertNothingFined(2 * CAP / 5);
    }

    function test_firm_whenClosedAtTheEnd_thenNothingIsLeft() external {
        uint24 seq = _beginFirm();
        skip(DURATION);
        Voucher memory last = _voucher(seq, CAP);
        _close(provider, last, _signVoucher(sessionKey, last), "");
        _assertTold(seq, CloseReason.END_OF_TIME, 0);
    }

    function test_firm_whenReleasedUnstarted_thenTellsAllLeftAndFinesNothing() external {
        uint24 seq = _openFirm();
        skip(1 minutes);
        _release(seq, CloseReason.HEALTH);
        _assertTold(seq, CloseReason.RELEASED_UNSTARTED, DURATION);
        _assertNothingFined(0);
        assertEq(_status(), Status.Free);
    }

    function test_firm_whenReleasedRunning_thenTellsWhatIsLeftAndFinesNothing() external {
        uint24 seq = _beginFirm();
        skip(1 hours);
        _release(seq, CloseReason.HEALTH);
        _assertTold(seq, CloseReason.HEALTH, DURATION - 1 hours);
        _assertNothingFined(0);
    }

    /// @dev Notice is the word of interruptible leases; a firm one is not.
    function test_firm_whenReleasedAfterNotice_thenTellsRelease() external {
        uint24 seq = _beginFirm();
        vm.prank(provider);
        book.giveNotice(provider, INDEX, seq);
        skip(1 hours);
        _release(seq, CloseReason.RELEASED);
        _assertTold(seq, CloseReason.RELEASED, DURATION - 1 hours);
    }

    function test_firm_whenReleasedAfterTheEnd_thenNothingIsLeft() external {
        uint24 seq = _beginFirm();
        skip(DURATION + 1);
        _release(seq, CloseReason.RELEASED);
        _assertTold(seq, CloseReason.END_OF_TIME, 0);
    }

    function test_firm_whenNoAcceptFollowsAReady_thenTheBuyerBrokeAllOfIt() external {
        uint24 seq = _openFirm();
        Ready memory ready = _readyOf(provider, INDEX, seq);
        book.postReady(ready, _signReady(nodeKey, ready));
        skip(START + 1);
        book.refundUnstarted(provider, INDEX, seq);
        _assertTold(seq, CloseReason.BUYER_NO_SHOW, DURATION);
        _assertNothingFined(0);
    }

    function test_firm_whenNoReadyCame_thenTheProviderBrokeAllOfIt() external {
        uint24 seq = _openFirm();
        skip(START + 1);
        book.refundUnstarted(provider, INDEX, seq);
        _assertTold(seq, CloseReason.PROVIDER_NO_SHOW, DURATION);
        _assertNothingFined(0);
    }

    function test_firm_whenItExpires_thenNothingIsLeft() external {
        uint24 seq = _beginFirm();
        skip(DURATION + CLAIM + 1);
        book.expire(provider, INDEX, seq);
        _assertTold(seq, CloseReason.EXPIRED, 0);
    }

    function test_firm_whenAnOrdinaryLeaseEnds_thenTellsNothing() external {
        uint24 seq = _openAndBegin();
        skip(1 hours);
        _stop(seq);
        _release(seq, CloseReason.RELEASED);
        assertEq(ear.count(), 0);
    }
}
