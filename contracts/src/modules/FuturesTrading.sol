// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IFutures} from "../interfaces/IFutures.sol";
import {MarginLib} from "../libraries/MarginLib.sol";
import {ModuleHash} from "../libraries/ModuleHash.sol";
import {NonceWindow} from "../libraries/NonceWindow.sol";
import {SettlementLib} from "../libraries/SettlementLib.sol";
import {SigCheck} from "../libraries/SigCheck.sol";
import {AccountWord} from "../types/AccountWord.sol";
import {Assignment, FutureOrder, FuturePair, Series} from "../types/Futures.sol";
import {SkipCode} from "../types/Lifecycle.sol";
import {Account} from "../types/Rows.sol";
import {FuturesBase} from "./FuturesBase.sol";

/// @title FuturesTrading: how a contract opens, and what its sides do before its window
abstract contract FuturesTrading is FuturesBase {
    uint256 private constant CAP_MAX = type(uint48).max;
    /// @dev Delivery opens a lease a unit in one transaction.
    uint256 private constant UNITS_MAX = 64;

    /// @dev What all pairs of a call share.
    struct Terms {
        uint256 product;
        uint256 windowStart;
        uint256 windowSeconds;
        uint256 price;
        uint256 gpus;
    }

    /// @dev Of an order that has opened a contract and was not used up by it, or that was closed.
    struct Progress {
        uint16 filled;
        bool closed;
    }

    /// @dev By its trader, so that nobody else closes it.
    mapping(address trader => mapping(bytes32 orderHash => Progress)) private _progress;

    // ---------------------------------------------------------------------------------------------- opening

    /// @inheritdoc IFutures
    function openFutures(Series calldata series, uint64 price, FuturePair[] calldata pairs) external {
        uint256 until = BOOK.pausedUntil();
        if (block.timestamp < until) revert Futures_OpeningsPaused(until);
        Terms memory terms = _termsOf(series, price);
        for (uint256 i; i < pairs.length; ++i) {
            SkipCode code = _open(terms, series, pairs[i]);
            if (code != SkipCode.NONE) emit PairSkipped({index: i, code: code});
        }
    }

    function _termsOf(Series calldata series, uint64 price) private view returns (Terms memory terms) {
        uint256 window = series.windowSeconds;
        bool known = window == 1 hours || window == 4 hours || window == 1 days || window == 7 days;
        if (!known) revert Futures_BadSeries("windowSeconds");
        if (series.windowStart % window != 0) revert Futures_BadSeries("windowStart");
        uint256 closesAt = deadlineOf(series.windowStart, series.windowSeconds);
        if (block.timestamp > closesAt) revert Futures_TooLate(closesAt);
        uint256 gpus = BOOK.productOf(series.product).sliceGpus;
        if (gpus == 0) revert Futures_BadSeries("product");
        uint256 cap = SettlementLib.costDown(price, gpus, window);
        if (cap == 0 || cap > CAP_MAX) revert Futures_BadSeries("price");
        terms = Terms({
            product: series.product, windowStart: series.windowStart, windowSeconds: window, price: price, gpus: gpus
        });
    }

    function _open(Terms memory terms, Series calldata series, FuturePair calldata pair) private returns (SkipCode) {
        SkipCode code = _agree(terms, pair);
        if (code != SkipCode.NONE) return code;
        FutureOrder calldata buy = pair.buy;
        FutureOrder calldata sell = pair.sell;
        (uint64 longMargin, uint64 shortMargin) = _margins(terms.price, terms.gpus, pair.units, terms.windowSeconds);
        (bytes32 buyHash, bytes32 sellHash) = (ModuleHash.hash(buy), ModuleHash.hash(sell));
        (uint32 longId, uint32 shortId) = (0, 0);
        (longId, code) = _able(buy, buyHash, pair.units, longMargin);
        if (code != SkipCode.NONE) return code;
        (shortId, code) = _able(sell, sellHash, pair.units, shortMargin);
        if (code != SkipCode.NONE) return code;
        if (!_isSigned(buy.trader, buyHash, pair.buySignature)) return SkipCode.BAD_BID_SIGNATURE;
        if (!_isSigned(sell.trader, sellHash, pair.sellSignature)) return SkipCode.BAD_ASK_SIGNATURE;

        bool buyBegins = _fill(buy, buyHash, pair.units);
        bool sellBegins = _fill(sell, sellHash, pair.units);
        uint40 contractId = ++_contractCount;
        Row storage row = _contracts[contractId];
        (row.longId, row.shortId, row.price) = (longId, shortId, uint64(terms.price));
        (row.product, row.windowStart) = (uint32(terms.product), uint32(terms.windowStart));
        (row.windowSeconds, row.units) = (uint24(terms.windowSeconds), pair.units);
        (row.longMargin, row.shortMargin) = (uint56(longMargin), uint56(shortMargin));
        _enter(buy, buyBegins, longMargin);
        _enter(sell, sellBegins, shortMargin);
        emit FutureOpened({
            contractId: contractId,
            long: buy.trader,
            short: sell.trader,
            series: series,
            price: uint64(terms.price),
            units: pair.units,
            longMargin: longMargin,
            shortMargin: shortMargin,
            buyHash: buyHash,
            sellHash: sellHash
        });
        return SkipCode.NONE;
    }

    /// @dev What the pair and its two orders say, without a look at any state.
    function _agree(Terms memory terms, FuturePair calldata pair) private view returns (SkipCode) {
        FutureOrder calldata buy = pair.buy;
        FutureOrder calldata sell = pair.sell;
        if (!_isOf(terms, buy) || !_isOf(terms, sell) || !buy.isBuy || sell.isBuy) return SkipCode.WRONG_SERIES;
        if (buy.matcher != msg.sender || sell.matcher != msg.sender) return SkipCode.WRONG_MATCHER;
        if (buy.trader == sell.trader) return SkipCode.SELF_DEALING;
        if (terms.price > buy.limitPricePerHour || terms.price < sell.limitPricePerHour) {
            return SkipCode.PRICE_OUTSIDE_LIMITS;
        }
        uint256 units = pair.units;
        if (units == 0 || units > UNITS_MAX) return SkipCode.WRONG_COUNT;
        if (block.timestamp > buy.startBy || block.timestamp > sell.startBy) return SkipCode.EXPIRED;
        return SkipCode.NONE;
    }

    function _isOf(Terms memory terms, FutureOrder calldata order) private pure returns (bool) {
        return order.product == terms.product && order.windowStart == terms.windowStart
            && order.windowSeconds == terms.windowSeconds;
    }

    /// @dev Whether the order has so many units left, and LeaseBook would take the margin and the nonce: asking it for
    /// both cannot fail for one pair. An order that began keeps its nonce, used, until the window leaves it behind.
    function _able(FutureOrder calldata order, bytes32 orderHash, uint256 units, uint256 margin)
        private
        view
        returns (uint32 id, SkipCode)
    {
        Progress memory progress = _progress[order.trader][orderHash];
        if (progress.closed) return (0, SkipCode.ORDER_CLOSED);
        if (progress.filled + units > order.units) return (0, SkipCode.WRONG_COUNT);
        Account memory account = BOOK.accountOf(order.trader);
        if (account.cash < margin) return (0, SkipCode.CASH_TOO_LOW);
        bool usable = order.nonce >= account.nonceBase;
        if (progress.filled == 0) {
            AccountWord word = AccountWord.wrap(0).withNonces(account.nonceBase, account.nonceBits);
            (, usable) = NonceWindow.use(word, order.nonce);
        }
        return (account.id, usable ? SkipCode.NONE : SkipCode.NONCE_USED);
    }

    /// @dev An order that its first contract uses up leaves no word behind: its nonce is used, so it never begins again.
    function _fill(FutureOrder calldata order, bytes32 orderHash, uint16 units) private returns (bool begins) {
        Progress storage progress = _progress[order.trader][orderHash];
        uint16 filled = progress.filled;
        begins = filled == 0;
        if (!begins || units != order.units) progress.filled = filled + units;
    }

    function _enter(FutureOrder calldata order, bool begins, uint64 margin) private {
        if (begins) BOOK.useNonce(order.trader, order.nonce);
        BOOK.takeCash(order.trader, margin);
    }

    function _margins(uint256 price, uint256 gpus, uint256 units, uint256 window)
        private
        view
        returns (uint64 long, uint64 short)
    {
        long = uint64(MarginLib.margin(price, gpus, units, window, LONG_BPS, MARGIN_FLOOR));
        short = uint64(MarginLib.margin(price, gpus, units, window, SHORT_BPS, MARGIN_FLOOR));
    }

    /// @dev As LeaseBook reads bids: no delegate, since margins are money; a contract only for its own call.
    function _isSigned(address trader, bytes32 structHash, bytes calldata signature) private view returns (bool) {
        bytes32 digest = _hashTypedDataV4(structHash);
        address signer = SigCheck.recover(digest, signature);
        if (signer != address(0) && signer == trader) return true;
        return trader == msg.sender && SigCheck.isAcceptedBy(trader, digest, signature);
    }

    /// @inheritdoc IFutures
    function closeOrder(bytes32 orderHash) external {
        _progress[msg.sender][orderHash].closed = true;
        emit FutureOrderClosed({orderHash: orderHash, trader: msg.sender});
    }

    /// @inheritdoc IFutures
    function progressOf(address trader, bytes32 orderHash) external view returns (uint16 filled, bool closed) {
        Progress storage progress = _progress[trader][orderHash];
        return (progress.filled, progress.closed);
    }

    // ---------------------------------------------------------------------------------------------- before the window

    /// @inheritdoc IFutures
    function assign(Assignment calldata assignment, bytes calldata signature) external {
        // Checks
        Row storage row = _beforeDeadline(assignment.contractId);
        (address leaver, address joiner) = (assignment.leaver, assignment.joiner);
        bool isBuy = assignment.isBuy;
        bool done = isBuy ? row.funded : row.machines != 0;
        if (done) revert Futures_AlreadyDone(assignment.contractId);
        (uint32 mine, uint32 other) = isBuy ? (row.longId, row.shortId) : (row.shortId, row.longId);
        if (msg.sender != leaver || BOOK.addressOf(mine) != leaver) revert Futures_NotOwner(msg.sender);
        uint32 next = BOOK.accountOf(joiner).id;
        if (next == 0 || next == mine || next == other) revert Futures_BadAssignment(leaver, joiner);
        if (block.timestamp > assignment.expiry) revert Futures_TooLate(assignment.expiry);
        address signer = SigCheck.recover(_hashTypedDataV4(ModuleHash.hash(assignment)), signature);
        if (signer == address(0) || signer != joiner) revert Futures_BadSignature(joiner);
        // Effects
        uint64 margin = isBuy ? row.longMargin : row.shortMargin;
        if (isBuy) row.longId = next;
        else row.shortId = next;
        // Interactions
        BOOK.useNonce(joiner, assignment.nonce);
        BOOK.takeCash(joiner, margin);
        BOOK.giveCash(leaver, margin);
        _pass(leaver, joiner, assignment.leaverPays);
        _pass(joiner, leaver, assignment.joinerPays);
        emit FutureAssigned({contractId: assignment.contractId, isBuy: isBuy, leaver: leaver, joiner: joiner});
    }

    function _pass(address from, address to, uint64 amount) private {
        if (amount == 0) return;
        BOOK.takeCash(from, amount);
        BOOK.giveCash(to, amount);
    }

    /// @inheritdoc IFutures
    function fund(uint40 contractId) external {
        Row storage row = _beforeDeadline(contractId);
        if (BOOK.addressOf(row.longId) != msg.sender) revert Futures_NotOwner(msg.sender);
        if (row.funded) revert Futures_AlreadyDone(contractId);
        row.funded = true;
        uint64 amount = uint64(_capOf(row) * row.units);
        BOOK.takeCash(msg.sender, amount);
        emit FutureFunded({contractId: contractId, amount: amount});
    }

    /// @inheritdoc IFutures
    function nominate(uint40 contractId, uint32[] calldata indexes) external {
        Row storage row = _beforeDeadline(contractId);
        if (BOOK.addressOf(row.shortId) != msg.sender) revert Futures_NotOwner(msg.sender);
        if (indexes.length == 0 || indexes.length > row.units) revert Futures_WrongCount(indexes.length, row.units);
        for (uint256 i; i < indexes.length; ++i) {
            if (BOOK.machineOf(msg.sender, indexes[i]).product != row.product) {
                revert Futures_WrongMachine(indexes[i]);
            }
        }
        row.machines = _machinesOf(indexes);
        emit MachinesNominated({contractId: contractId, indexes: indexes});
    }

    function _beforeDeadline(uint40 contractId) private view returns (Row storage row) {
        row = _rowOf(contractId);
        uint256 closesAt = deadlineOf(row.windowStart, row.windowSeconds);
        if (block.timestamp > closesAt) revert Futures_TooLate(closesAt);
    }
}
