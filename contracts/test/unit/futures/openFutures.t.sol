// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IFutures} from "../../../src/interfaces/IFutures.sol";
import {FutureContract, FutureOrder, FuturePair, FuturesRules, Series} from "../../../src/types/Futures.sol";
import {SkipCode} from "../../../src/types/Lifecycle.sol";
import {Wallet} from "../../mocks/Wallets.sol";
import {FuturesFixture} from "./FuturesFixture.sol";

contract OpenFutures is FuturesFixture {
    function _refusedSeries(Series memory series, uint64 price, bytes memory error_) private {
        vm.expectRevert(error_);
        module.openFutures(series, price, new FuturePair[](0));
    }

    function _bad(bytes32 field) private pure returns (bytes memory) {
        return abi.encodeWithSelector(IFutures.Futures_BadSeries.selector, field);
    }

    function _skipped(FuturePair memory pair, SkipCode code) private {
        (uint256 long, uint256 short) = (_cash(buyer), _cash(provider));
        _expectPairSkipped(code);
        _submitPair(pair);
        assertEq(module.contractCount(), 0);
        assertEq(_cash(buyer), long);
        assertEq(_cash(provider), short);
        assertEq(book.moduleCash(address(module)), 0);
    }

    function test_openFutures_whenOpeningsArePaused_thenReverts() external {
        vm.prank(guardian);
        book.pauseOpenings(1 hours);
        bytes memory error_ =
            abi.encodeWithSelector(IFutures.Futures_OpeningsPaused.selector, block.timestamp + 1 hours);
        _refusedSeries(_series(), PRICE, error_);
        skip(1 hours);
        _openContract();
    }

    function test_openFutures_whenTheSeriesIsNone_thenReverts() external {
        Series memory series = _series();
        series.windowSeconds = 2 hours;
        _refusedSeries(series, PRICE, _bad("windowSeconds"));
        series.windowSeconds = WINDOW;
        series.windowStart += 1 hours;
        _refusedSeries(series, PRICE, _bad("windowStart"));
        series.windowStart = windowStart;
        series.product = product + 1;
        _refusedSeries(series, PRICE, _bad("product"));
        _refusedSeries(_series(), 0, _bad("price"));
        _refusedSeries(_series(), type(uint64).max, _bad("price"));
    }

    function test_openFutures_whenTheDeadlineHasPassed_thenReverts() external {
        vm.warp(windowStart - LEAD + 1);
        bytes memory error_ = abi.encodeWithSelector(IFutures.Futures_TooLate.selector, windowStart - LEAD);
        _refusedSeries(_series(), PRICE, error_);
        Series memory short = Series({product: product, windowStart: windowStart, windowSeconds: 4 hours});
        module.openFutures(short, PRICE, new FuturePair[](0)); // closes six hours before
        assertEq(module.deadlineOf(windowStart, 4 hours), windowStart - LEAD_SHORT);
        assertEq(module.deadlineOf(10, 4 hours), 0);
    }

    function test_openFutures_whenAnOrderIsOfAnotherSeriesOrSide_thenSkips() external {
        (FutureOrder memory buy, FutureOrder memory sell) = (_order(buyer, true), _order(provider, false));
        _skipped(_pairOf(sell, buy), SkipCode.WRONG_SERIES);
        _skipped(_pairOf(buy, _order(provider, true)), SkipCode.WRONG_SERIES);
        sell.product += 1;
        _skipped(_pairOf(buy, sell), SkipCode.WRONG_SERIES);
        (sell.product, buy.windowStart) = (product, windowStart + WINDOW);
        _skipped(_pairOf(buy, sell), SkipCode.WRONG_SERIES);
        (buy.windowStart, buy.windowSeconds) = (windowStart, 4 hours);
        _skipped(_pairOf(buy, sell), SkipCode.WRONG_SERIES);
    }

    function test_openFutures_whenTheCallerIsNotBothMatchers_thenSkips() external {
        (FutureOrder memory buy, FutureOrder memory sell) = (_order(buyer, true), _order(provider, false));
        buy.matcher = stranger;
        _skipped(_pairOf(buy, sell), SkipCode.WRONG_MATCHER);
        (buy.matcher, sell.matcher) = (matcher, stranger);
        _skipped(_pairOf(buy, sell), SkipCode.WRONG_MATCHER);
    }

    function test_openFutures_whenOneTraderIsBothSides_thenSkips() external {
        _skipped(_pairOf(_order(buyer, true), _order(buyer, false)), SkipCode.SELF_DEALING);
    }

    function test_openFutures_whenThePriceIsOutsideALimit_thenSkips() external {
        (FutureOrder memory buy, FutureOrder memory sell) = (_order(buyer, true), _order(provider, false));
        buy.limitPricePerHour = PRICE - 1;
        _skipped(_pairOf(buy, sell), SkipCode.PRICE_OUTSIDE_LIMITS);
        (buy.limitPricePerHour, sell.limitPricePerHour) = (PRICE, PRICE + 1);
        _skipped(_pairOf(buy, sell), SkipCode.PRICE_OUTSIDE_LIMITS);
    }

    function test_openFutures_whenTheUnitsAreOutOfRange_thenSkips() external {
        FuturePair memory pair = _pair();
        pair.units = 0;
        _skipped(pair, SkipCode.WRONG_COUNT);
        pair.units = UNITS + 1;
        _skipped(pair, SkipCode.WRONG_COUNT);
        (FutureOrder memory buy, FutureOrder memory sell) = (_order(buyer, true), _order(provider, false));
        (buy.units, sell.units) = (100, UNITS);
        pair = _pairOf(buy, sell);
        pair.units = UNITS + 1;
        _skipped(pair, SkipCode.WRONG_COUNT);
        sell.units = 100;
        pair = _pairOf(buy, sell);
        pair.units = 65;
        _skipped(pair, SkipCode.WRONG_COUNT);
    }

    function test_openFutures_whenAnOrderExpired_thenSkips() external {
        (FutureOrder memory buy, FutureOrder memory sell) = (_order(buyer, true), _order(provider, false));
        buy.startBy = uint32(block.timestamp - 1);
        _skipped(_pairOf(buy, sell), SkipCode.EXPIRED);
        (buy.startBy, sell.startBy) = (uint32(block.timestamp), uint32(block.timestamp - 1));
        _skipped(_pairOf(buy, sell), SkipCode.EXPIRED);
    }

    function test_openFutures_whenAMarginIsNotCovered_thenSkips() external {
        uint64 above = uint64(CASH - LONG_MARGIN + 1);
        vm.prank(buyer);
        book.withdraw(above);
        _skipped(_pair(), SkipCode.CASH_TOO_LOW);
        token.mint(stranger, 1);
        vm.startPrank(stranger);
        token.approve(address(book), 1);
        book.deposit(buyer, 1);
        vm.stopPrank();
        _openContract();
    }

    function test_openFutures_whenTheSellersMarginIsNotCovered_thenSkips() external {
        uint64 above = uint64(_cash(provider) - SHORT_MARGIN + 1);
        vm.prank(provider);
        book.withdraw(above);
        _skipped(_pair(), SkipCode.CASH_TOO_LOW);
    }

    function test_openFutures_whenATraderIsNoAccount_thenSkips() external {
        _skipped(_pairOf(_order(stranger, true), _order(provider, false)), SkipCode.CASH_TOO_LOW);
    }

    function test_openFutures_whenANonceWasUsed_thenSkips() external {
        FuturePair memory pair = _pair();
        vm.prank(provider);
        book.cancelOne(pair.sell.nonce);
        _skipped(pair, SkipCode.NONCE_USED);
        pair = _pair();
        vm.prank(buyer);
        book.cancelBelow(pair.buy.nonce + 1);
        _skipped(pair, SkipCode.NONCE_USED);
    }

    function test_openFutures_whenTheNonceOfAnOrderThatBeganWasPassed_thenSkips() external {
        FutureOrder memory sell = _order(provider, false);
        sell.units = 3 * UNITS;
        _submitPair(_pairOf(_order(buyer, true), sell));
        vm.prank(provider);
        book.cancelBelow(sell.nonce);
        _submitPair(_pairOf(_order(buyer, true), sell));
        assertEq(module.contractCount(), 2);
        vm.prank(provider);
        book.cancelBelow(sell.nonce + 1);
        _expectPairSkipped(SkipCode.NONCE_USED);
        _submitPair(_pairOf(_order(buyer, true), sell));
    }

    function test_openFutures_whenAnotherSigned_thenSkips() external {
        FuturePair memory pair = _pair();
        pair.buySignature = _signOrder(sessionKey, pair.buy);
        _skipped(pair, SkipCode.BAD_BID_SIGNATURE);
        pair = _pair();
        pair.sellSignature = _signOrder(nodeKey, pair.sell);
        _skipped(pair, SkipCode.BAD_ASK_SIGNATURE);
    }

    function test_openFutures_whenATraderIsAContract_thenItOpensItsOwnOnly() external {
        Wallet wallet = new Wallet(stranger, Wallet.Mood.Honest);
        token.mint(address(wallet), 1000e6);
        wallet.join(book, 1000e6);
        FutureOrder memory buy = _order(address(wallet), true);
        FutureOrder memory sell = _order(provider, false);
        FuturePair[] memory pairs = new FuturePair[](1);
        pairs[0] = FuturePair(buy, sell, UNITS, _signOrder(stranger, buy), _signOrder(provider, sell));
        _skipped(pairs[0], SkipCode.BAD_BID_SIGNATURE);
        (buy.matcher, sell.matcher) = (address(wallet), address(wallet));
        pairs[0] = FuturePair(buy, sell, UNITS, _signOrder(stranger, buy), _signOrder(provider, sell));
        vm.prank(stranger);
        wallet.run(address(module), abi.encodeCall(IFutures.openFutures, (_series(), PRICE, pairs)));
        assertEq(module.contractOf(1).long, address(wallet));
    }

    function test_openFutures_whenAllIsWell_thenBothMarginsAreLocked() external {
        uint256 before = _cash(provider);
        uint40 id = _openContract();
        FutureContract memory found = module.contractOf(id);
        assertEq(found.long, buyer);
        assertEq(found.short, provider);
        assertEq(found.series.product, product);
        assertEq(found.series.windowStart, windowStart);
        assertEq(found.series.windowSeconds, WINDOW);
        assertEq(found.price, PRICE);
        assertEq(found.units, UNITS);
        assertEq(found.longMargin, LONG_MARGIN);
        assertEq(found.shortMargin, SHORT_MARGIN);
        assertFalse(found.funded || found.nominated);
        assertEq(_cash(buyer), CASH - LONG_MARGIN);
        assertEq(_cash(provider), before - SHORT_MARGIN);
        _assertSolventWithModule();
    }

    /// @dev One base unit an hour and GPU: 48 base units for the day, and margins of 7.2 and 12.
    function test_openFutures_whenMarginsDoNotDivide_thenTheyRoundUpAndMeetTheFloor() external {
        FutureOrder memory buy = _order(buyer, true);
        FutureOrder memory sell = _order(provider, false);
        sell.limitPricePerHour = 1;
        FuturePair[] memory pairs = new FuturePair[](1);
        pairs[0] = _pairOf(buy, sell);
        vm.prank(matcher);
        module.openFutures(_series(), 1, pairs);
        assertEq(module.contractOf(1).longMargin, MARGIN_FLOOR);
        // 3,335,001 * 2 * 24 * 2 * 0.15 = 48,024,014.4
        (buy, sell) = (_order(buyer, true), _order(provider, false));
        buy.limitPricePerHour = 3_335_001;
        pairs[0] = _pairOf(buy, sell);
        vm.prank(matcher);
        module.openFutures(_series(), 3_335_001, pairs);
        assertEq(module.contractOf(2).longMargin, 48_024_015);
        assertEq(module.contractOf(2).shortMargin, 80_040_024);
    }

    function test_openFutures_whenAPairIsSkipped_thenTheOthersOpen() external {
        FuturePair[] memory pairs = new FuturePair[](3);
        (pairs[0], pairs[1], pairs[2]) = (_pair(), _pair(), _pair());
        pairs[1].units = 0;
        vm.expectEmit(address(module));
        emit IFutures.PairSkipped(1, SkipCode.WRONG_COUNT);
        vm.prank(matcher);
        module.openFutures(_series(), PRICE, pairs);
        assertEq(module.contractCount(), 2);
        assertEq(_cash(buyer), CASH - 2 * LONG_MARGIN);
    }

    /// @dev Five units, sold to three buys of two, two and three: the last finds one unit too few.
    function test_openFutures_whenAnOrderHasUnitsLeft_thenItOpensMoreContracts() external {
        FutureOrder memory sell = _order(provider, false);
        sell.units = 5;
        FuturePair[] memory pairs = new FuturePair[](4);
        for (uint256 i; i < 4; ++i) {
            FutureOrder memory buy = _order(buyer, true);
            buy.units = i < 2 ? 2 : 3;
            pairs[i] = _pairOf(buy, sell);
        }
        (pairs[2].units, pairs[3].units) = (3, 1);
        uint256 before = _cash(provider);
        vm.expectEmit(address(module));
        emit IFutures.PairSkipped(2, SkipCode.WRONG_COUNT);
        vm.prank(matcher);
        module.openFutures(_series(), PRICE, pairs);
        assertEq(module.contractCount(), 3);
        assertEq(module.contractOf(3).units, 1);
        assertEq(_cash(provider), before - 2 * SHORT_MARGIN - module.contractOf(3).shortMargin);
        (uint16 filled, bool closed) = module.progressOf(provider, _hashOf(sell));
        assertEq(filled, 5);
        assertFalse(closed);
        (filled,) = module.progressOf(buyer, _hashOf(pairs[3].buy));
        assertEq(filled, 1);
        _expectPairSkipped(SkipCode.WRONG_COUNT);
        _submitPair(_pairOf(_order(buyer, true), sell));
        _assertSolventWithModule();
    }

    function test_openFutures_whenTheRestExpired_thenSkips() external {
        FutureOrder memory buy = _order(buyer, true);
        buy.units = 2 * UNITS;
        _submitPair(_pairOf(buy, _order(provider, false)));
        vm.warp(buy.startBy + 1);
        FutureOrder memory sell = _order(provider, false);
        _expectPairSkipped(SkipCode.EXPIRED);
        _submitPair(_pairOf(buy, sell));
    }

    function test_openFutures_whenAnOrderBegan_thenItsAlternativesAreVoid() external {
        FutureOrder memory buy = _order(buyer, true);
        buy.units = 2 * UNITS;
        FutureOrder memory other = _order(buyer, true);
        (other.nonce, other.units) = (buy.nonce, 3 * UNITS);
        _submitPair(_pairOf(buy, _order(provider, false)));
        _expectPairSkipped(SkipCode.NONCE_USED);
        _submitPair(_pairOf(other, _order(provider, false)));
        _submitPair(_pairOf(buy, _order(provider, false)));
        assertEq(module.contractCount(), 2);
    }

    function test_openFutures_whenItsFirstContractUsesAnOrderUp_thenItLeavesNoWord() external {
        FuturePair memory pair = _pair();
        _submitPair(pair);
        (uint16 filled,) = module.progressOf(buyer, _hashOf(pair.buy));
        assertEq(filled, 0);
        _expectPairSkipped(SkipCode.NONCE_USED);
        _submitPair(pair);
    }

    // ---------------------------------------------------------------------------------------------- construction

    function _tryRules(FuturesRules memory changed, bytes32 field) private {
        bytes memory code = abi.encodePacked(vm.getCode("Futures.sol:Futures"), abi.encode(book, changed));
        (address made, bytes memory answer) = _tryCreate(code);
        assertEq(made, address(0));
        assertEq(answer, abi.encodeWithSelector(IFutures.Futures_BadSetting.selector, field));
    }

    function test_construction_whenTheBookNamesAnother_thenReverts() external {
        _tryRules(_rules(), "leaseBook");
    }

    function test_construction_whenARuleIsOutOfRange_thenReverts() external {
        vm.mockCall(address(book), abi.encodeWithSignature("futures()"), abi.encode(_next()));
        FuturesRules memory changed = _rules();
        changed.longBps = 0;
        _tryRules(changed, "longBps");
        changed.longBps = 5001;
        vm.mockCall(address(book), abi.encodeWithSignature("futures()"), abi.encode(_next()));
        _tryRules(changed, "longBps");
        (changed.longBps, changed.shortBps) = (5000, 5001);
        vm.mockCall(address(book), abi.encodeWithSignature("futures()"), abi.encode(_next()));
        _tryRules(changed, "shortBps");
        (changed.shortBps, changed.lead) = (5000, 7 days + 1);
        vm.mockCall(address(book), abi.encodeWithSignature("futures()"), abi.encode(_next()));
        _tryRules(changed, "lead");
        (changed.lead, changed.leadShort) = (1 hours, 1 hours + 1);
        vm.mockCall(address(book), abi.encodeWithSignature("futures()"), abi.encode(_next()));
        _tryRules(changed, "leadShort");
    }

    function _next() private view returns (address) {
        return vm.computeCreateAddress(address(this), vm.getNonce(address(this)));
    }

    function test_views_whenAsked_thenSayWhatWasFixed() external view {
        assertEq(module.leaseBook(), address(book));
        assertEq(keccak256(abi.encode(module.rules())), keccak256(abi.encode(_rules())));
        assertEq(module.contractOf(9).long, address(0));
        assertEq(module.unitOf(provider, INDEX, 9).contractId, 0);
    }
}
