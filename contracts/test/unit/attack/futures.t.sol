// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IFutures} from "../../../src/interfaces/IFutures.sol";

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {ILeaseOffice} from "../../../src/interfaces/ILeaseOffice.sol";
import {Assignment, FutureOrder, FuturePair, FutureUnit, UnitEnd} from "../../../src/types/Futures.sol";
import {CloseReason, SkipCode, Status} from "../../../src/types/Lifecycle.sol";
import {Ready, Voucher} from "../../../src/types/Orders.sol";
import {FuturesFixture} from "../futures/FuturesFixture.sol";

/// @dev Attacks on futures; one test a way to get out of a contract, or into somebody else's money.
contract AttackOnFutures is FuturesFixture {
    uint256 private constant LONG_PART = LONG_MARGIN / 2;
    uint256 private constant SHORT_PART = SHORT_MARGIN / 2;

    // ------------------------------------------------------------------------------------------------ the long

    /// @dev The price fell: the long stops at once and rents elsewhere. Its margin for the window pays the short.
    function test_attack_longStops() external {
        uint256 short = _cash(provider);
        uint24 seq = _running();
        _stop(seq);
        _settleUnit(seq);
        assertEq(_cash(provider), short - SHORT_MARGIN + SHORT_PART + LONG_PART);
        assertEq(_cash(buyer), CASH - UNIT_CAP - LONG_MARGIN); // the other unit's cap and margin still wait
    }

    function test_attack_longRefusesAccept() external {
        uint256 short = _cash(provider);
        _delivered();
        Ready memory ready = _readyOf(provider, INDEX, 1);
        book.postReady(ready, _signReady(nodeKey, ready));
        skip(START + 1);
        book.refundUnstarted(provider, INDEX, 1);
        _settleUnit(1);
        assertEq(_cash(provider), short - SHORT_MARGIN + SHORT_PART + LONG_PART);
    }

    /// @dev A stop in the last second is not one in the first.
    function test_attack_longStopsAndSaysItWasReleased() external {
        uint24 seq = _running();
        skip(WINDOW / 2);
        _stop(seq);
        // Whatever ends the lease now, the stop was told.
        _release(seq);
        assertEq(uint8(module.unitOf(provider, INDEX, seq).end), uint8(UnitEnd.BROKEN_BY_LONG));
        assertEq(module.unitOf(provider, INDEX, seq).left, WINDOW / 2);
    }

    /// @dev It pays nothing while it can still choose: default costs the whole margin.
    function test_attack_longWaitsForThePriceAndDoesNotFund() external {
        uint256 short = _cash(provider);
        uint40 id = _openContract();
        _nominateIt(id, _indexes());
        vm.warp(windowStart - LEAD + 1);
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_TooLate.selector, windowStart - LEAD));
        _fundIt(id);
        module.settleDefault(id);
        assertEq(_cash(provider), short + LONG_MARGIN);
    }

    // ------------------------------------------------------------------------------------------------ the short

    function test_attack_shortReleases() external {
        uint24 seq = _running();
        _release(seq);
        _settleUnit(seq);
        // The cap is back, and the short's margin for the whole window on top.
        assertEq(_cash(buyer), CASH - UNIT_CAP - LONG_MARGIN + LONG_PART + SHORT_PART);
        assertEq(book.machineOf(provider, INDEX).bond, BOND, "the bond is not touched besides");
    }

    function test_attack_shortNeverReadies() external {
        _delivered();
        skip(START + 1);
        book.refundUnstarted(provider, INDEX, 1);
        _settleUnit(1);
        assertEq(_cash(buyer), CASH - UNIT_CAP - LONG_MARGIN + LONG_PART + SHORT_PART);
    }

    /// @dev Notice frees an interruptible lease of its penalty, never a firm one of its margin.
    function test_attack_shortGivesNoticeAndLeaves() external {
        uint24 seq = _running();
        vm.prank(provider);
        book.giveNotice(provider, INDEX, seq);
        skip(WINDOW / 4);
        _release(seq);
        _settleUnit(seq);
        assertEq(_cash(buyer), CASH - UNIT_CAP - LONG_MARGIN + LONG_PART + SHORT_PART * 3 / 4);
    }

    /// @dev Nominated machines that are sold elsewhere, or leave, cost the margin at delivery.
    function test_attack_shortNominatesMachinesItLeasesElsewhere() external {
        uint40 id = _openContract();
        _fundIt(id);
        _nominateIt(id, _indexes());
        vm.warp(windowStart);
        _open(); // a spot lease of INDEX
        vm.prank(provider);
        book.retire(SECOND);
        module.deliver(id, _indexes());
        assertEq(_cash(buyer), CASH + SHORT_MARGIN - CAP);
    }

    /// @dev A machine with hardly a bond behind it cannot be delivered.
    function test_attack_shortNominatesAMachineWithoutABond() external {
        vm.prank(provider);
        book.addMachine(9, 1, product);
        uint40 id = _openContract();
        _fundIt(id);
        uint32[] memory indexes = _indexes();
        indexes[1] = 9;
        _nominateIt(id, indexes);
        vm.warp(windowStart);
        module.deliver(id, indexes);
        assertEq(uint8(book.machineOf(provider, 9).status), uint8(Status.Free));
        assertEq(_cash(buyer), CASH - UNIT_CAP - LONG_PART + SHORT_PART);
    }

    // ------------------------------------------------------------------------------------------------ third parties

    /// @dev Whoever sends a call chooses its gas; it cannot make a lease end without its margins' knowing.
    function test_attack_stopWithTooLittleGasForTheMargins() external {
        uint24 seq = _running();
        skip(1 hours);
        bytes memory call_ = abi.encodeCall(ILeaseOffice.stop, (provider, INDEX, seq));
        bool ok;
        uint256 refused;
        for (uint256 gas_ = 1000; !ok; gas_ += 200) {
            vm.prank(buyer);
            (ok,) = address(book).call{gas: gas_}(call_);
            if (!ok) ++refused;
        }
        assertGt(refused, 10);
        FutureUnit memory unit = module.unitOf(provider, INDEX, seq);
        assertEq(uint8(unit.end), uint8(UnitEnd.BROKEN_BY_LONG));
        assertEq(unit.left, WINDOW - 1 hours);
    }

    function test_attack_strangerFundsNominatesOrAssigns() external {
        uint40 id = _openContract();
        vm.startPrank(stranger);
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_NotOwner.selector, stranger));
        module.fund(id);
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_NotOwner.selector, stranger));
        module.nominate(id, _indexes());
        vm.stopPrank();
    }

    /// @dev The joiner joined once, left, and would be drawn in again by its old word.
    function test_attack_assignmentReplayed() external {
        uint40 id = _openContract();
        Assignment memory value = _assignment(id, true, buyer);
        value.joinerPays = 7e6;
        bytes memory signature = _signAssignment(joiner, value);
        vm.prank(buyer);
        module.assign(value, signature);
        Assignment memory back = _assignment(id, true, joiner);
        back.joiner = buyer;
        bytes memory word = _signAssignment(buyer, back);
        vm.prank(joiner);
        module.assign(back, word);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NonceUnusable.selector, value.nonce));
        vm.prank(buyer);
        module.assign(value, signature);
    }

    /// @dev An order opens no more than it says; the same on another chain or contract opens nothing.
    function test_attack_orderReplayed() external {
        FuturePair memory pair = _pair();
        _submitPair(pair);
        _expectPairSkipped(SkipCode.NONCE_USED);
        _submitPair(pair);
        pair = _pair();
        vm.chainId(8453);
        _expectPairSkipped(SkipCode.BAD_BID_SIGNATURE);
        _submitPair(pair);
        vm.chainId(31_337);
        pair.buySignature = _sign(buyer, keccak256(abi.encode(pair.buy))); // LeaseBook's domain
        _expectPairSkipped(SkipCode.BAD_BID_SIGNATURE);
        _submitPair(pair);
        assertEq(module.contractCount(), 1);
    }

    function test_attack_operatorAltersAnOrder() external {
        FuturePair memory pair = _pair();
        pair.sell.limitPricePerHour -= 1;
        _expectPairSkipped(SkipCode.BAD_ASK_SIGNATURE);
        _submitPair(pair);
        pair = _pair();
        (pair.buy.units, pair.sell.units, pair.units) = (UNITS + 1, UNITS + 1, UNITS + 1);
        _expectPairSkipped(SkipCode.BAD_BID_SIGNATURE);
        _submitPair(pair);
    }

    /// @dev (r, s) and (r, n - s) are two signatures of one word; neither is a second contract.
    function test_attack_malleableSignature() external {
        FutureOrder memory buy = _order(buyer, true);
        FuturePair memory pair = _pairOf(buy, _order(provider, false));
        (bytes32 r, bytes32 s) = (_word(pair.buySignature, 0), _word(pair.buySignature, 32));
        uint256 n = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141;
        uint8 v = uint8(pair.buySignature[64]) == 27 ? 28 : 27;
        pair.buySignature = abi.encodePacked(r, bytes32(n - uint256(s)), v);
        _expectPairSkipped(SkipCode.BAD_BID_SIGNATURE);
        _submitPair(pair);
    }

    function _word(bytes memory from, uint256 offset) private pure returns (bytes32 word) {
        assembly ("memory-safe") {
            word := mload(add(add(from, 0x20), offset))
        }
    }

    /// @dev Two contracts, one nominated machine: it is delivered once, and the second contract costs its margin.
    function test_attack_shortNominatesOneMachineForTwoContracts() external {
        (uint40 first, uint40 second) = (_openContract(), _openContract());
        _fundIt(first);
        _fundIt(second);
        _nominateIt(first, _indexes());
        _nominateIt(second, _indexes());
        vm.warp(windowStart);
        module.deliver(first, _indexes());
        uint256 before = _cash(buyer);
        module.deliver(second, _indexes());
        assertEq(_cash(buyer), before + 2 * UNIT_CAP + LONG_MARGIN + SHORT_MARGIN);
        _assertSolventWithModule();
    }

    /// @dev The unit's margins are paid out once, by its own lease, whatever became of the machine.
    function test_attack_unitSettledByAnotherLeasesEnd() external {
        uint24 seq = _running();
        Voucher memory none = _voucher(seq, 0);
        vm.prank(provider);
        book.release(none, "", CloseReason.HEALTH);
        uint24 spot = _openAndBegin();
        _stop(spot);
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_NoUnit.selector, _key(), spot));
        _settleUnit(spot);
        _settleUnit(seq);
        vm.expectRevert(abi.encodeWithSelector(IFutures.Futures_NoUnit.selector, _key(), seq));
        _settleUnit(seq);
    }
}
