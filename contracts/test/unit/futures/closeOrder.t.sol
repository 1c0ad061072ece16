// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IFutures} from "../../../src/interfaces/IFutures.sol";
import {FutureOrder} from "../../../src/types/Futures.sol";
import {SkipCode} from "../../../src/types/Lifecycle.sol";
import {FuturesFixture} from "./FuturesFixture.sol";

contract CloseOrder is FuturesFixture {
    function _closeIt(FutureOrder memory order) private {
        vm.expectEmit(address(module));
        emit IFutures.FutureOrderClosed(_hashOf(order), order.trader);
        vm.prank(order.trader);
        module.closeOrder(_hashOf(order));
    }

    function _isClosed(FutureOrder memory order) private view returns (bool closed) {
        (, closed) = module.progressOf(order.trader, _hashOf(order));
    }

    function test_closeOrder_whenItHasOpenedNone_thenItOpensNoneAndFreesItsNonce() external {
        FutureOrder memory buy = _order(buyer, true);
        FutureOrder memory other = _order(buyer, true);
        other.nonce = buy.nonce;
        other.limitPricePerHour += 1;
        _closeIt(buy);
        assertTrue(_isClosed(buy));
        _expectPairSkipped(SkipCode.ORDER_CLOSED);
        _submitPair(_pairOf(buy, _order(provider, false)));
        _submitPair(_pairOf(other, _order(provider, false)));
        assertEq(module.contractCount(), 1);
    }

    function test_closeOrder_whenUnitsAreLeft_thenItsContractsStay() external {
        FutureOrder memory sell = _order(provider, false);
        sell.units = 2 * UNITS;
        _submitPair(_pairOf(_order(buyer, true), sell));
        uint256 locked = book.moduleCash(address(module));
        _closeIt(sell);
        _expectPairSkipped(SkipCode.ORDER_CLOSED);
        _submitPair(_pairOf(_order(buyer, true), sell));
        assertEq(module.contractOf(1).units, UNITS);
        assertEq(book.moduleCash(address(module)), locked);
        (uint16 filled, bool closed) = module.progressOf(provider, _hashOf(sell));
        assertEq(filled, UNITS);
        assertTrue(closed);
    }

    function test_closeOrder_whenAnotherCloses_thenNothingChanges() external {
        FutureOrder memory buy = _order(buyer, true);
        vm.prank(provider);
        module.closeOrder(_hashOf(buy));
        assertFalse(_isClosed(buy));
        _submitPair(_pairOf(buy, _order(provider, false)));
        assertEq(module.contractCount(), 1);
    }

    function test_closeOrder_whenOpeningsArePaused_thenCloses() external {
        vm.prank(guardian);
        book.pauseOpenings(1 hours);
        FutureOrder memory buy = _order(buyer, true);
        _closeIt(buy);
        assertTrue(_isClosed(buy));
    }
}
