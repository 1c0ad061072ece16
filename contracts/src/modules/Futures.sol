// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IFirmLeases} from "../interfaces/IFirmLeases.sol";
import {IFutures} from "../interfaces/IFutures.sol";
import {ILeaseBook} from "../interfaces/ILeaseBook.sol";
import {MarginLib} from "../libraries/MarginLib.sol";
import {ModuleHash} from "../libraries/ModuleHash.sol";
import {NonceWindow} from "../libraries/NonceWindow.sol";
import {SettlementLib} from "../libraries/SettlementLib.sol";
import {SigCheck} from "../libraries/SigCheck.sol";
import {AccountWord} from "../types/AccountWord.sol";
import {
    Assignment,
    ContractEnd,
    FutureContract,
    FutureOrder,
    FuturePair,
    FutureUnit,
    FuturesRules,
    Series,
    UnitEnd
} from "../types/Futures.sol";
import {CloseReason, SkipCode} from "../types/Lifecycle.sol";
import {MachineKey, machineKeyOf} from "../types/MachineKey.sol";
import {Account, Opening} from "../types/Rows.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";

/// @title Futures (see {IFutures})
/// @dev No owner and no way to change anything. LeaseBook is ours and calls nobody but {leaseEnded} and the token, so
/// what this contract asks of it returns before anybody else acts.
contract Futures is IFutures, EIP712 {
    uint256 private constant LEAD_MAX = 7 days;
    /// @dev With it a unit's part of a margin stays below 2^48, like a unit's price.
    uint256 private constant MARGIN_BPS_MAX = 5000;
    uint256 private constant CAP_MAX = type(uint48).max;
    /// @dev Delivery opens a lease a unit in one transaction.
    uint256 private constant UNITS_MAX = 64;

    /// @dev Two slots, cleared at the contract's end; the number is not used again, so that no signed assignment ever
    /// means another contract.
    struct Row {
        uint32 longId;
        uint32 shortId;
        uint64 price;
        uint32 product;
        uint32 windowStart;
        uint24 windowSeconds;
        uint16 units;
        bool funded;
        uint56 longMargin;
        uint56 shortMargin;
        /// Of the nominated machines; 0: none.
        bytes18 machines;
    }

    /// @dev One slot, cleared when the margins are out.
    struct Unit {
        uint40 contractId;
        uint32 longId;
        uint32 shortId;
        uint48 longMargin;
        uint48 shortMargin;
        UnitEnd end;
        uint24 left;
        uint24 windowSeconds;
    }

    /// @dev What all pairs of a call share.
    struct Terms {
        uint256 product;
        uint256 windowStart;
        uint256 windowSeconds;
        uint256 price;
        uint256 gpus;
    }

    ILeaseBook private immutable BOOK;
    uint256 private immutable START_WINDOW;
    uint16 private immutable LONG_BPS;
    uint16 private immutable SHORT_BPS;
    uint48 private immutable MARGIN_FLOOR;
    uint32 private immutable LEAD;
    uint32 private immutable LEAD_SHORT;

    uint40 private _contractCount;
    mapping(uint40 contractId => Row) private _contracts;
    mapping(MachineKey => mapping(uint24 seq => Unit)) private _units;

    /// @param book_ Must name this contract as its futures module.
    constructor(ILeaseBook book_, FuturesRules memory rules_) EIP712("Futures", "1") {
        if (book_.futures() != address(this)) revert Futures_BadSetting("leaseBook");
        if (rules_.longBps == 0 || rules_.longBps > MARGIN_BPS_MAX) revert Futures_BadSetting("longBps");
        if (rules_.shortBps == 0 || rules_.shortBps > MARGIN_BPS_MAX) revert Futures_BadSetting("shortBps");
        if (rules_.lead == 0 || rules_.lead > LEAD_MAX) revert Futures_BadSetting("lead");
        if (rules_.leadShort == 0 || rules_.leadShort > rules_.lead) revert Futures_BadSetting("leadShort");
        BOOK = book_;
        START_WINDOW = book_.windows().start;
        LONG_BPS = rules_.longBps;
        SHORT_BPS = rules_.shortBps;
        MARGIN_FLOOR = rules_.marginFloor;
        LEAD = rules_.lead;
        LEAD_SHORT = rules_.leadShort;
    }

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
        (uint32 longId, uint32 shortId) = (0, 0);
        (longId, code) = _able(buy.trader, buy.nonce, longMargin);
        if (code != SkipCode.NONE) return code;
        (shortId, code) = _able(sell.trader, sell.nonce, shortMargin);
        if (code != SkipCode.NONE) return code;
        (bytes32 buyHash, bytes32 sellHash) = (ModuleHash.hash(buy), ModuleHash.hash(sell));
        if (!_isSigned(buy.trader, buyHash, pair.buySignature)) return SkipCode.BAD_BID_SIGNATURE;
        if (!_isSigned(sell.trader, sellHash, pair.sellSignature)) return SkipCode.BAD_ASK_SIGNATURE;

        _enter(buy.trader, buy.nonce, longMargin);
        _enter(sell.trader, sell.nonce, shortMargin);
        uint40 contractId = ++_contractCount;
        Row storage row = _contracts[contractId];
        (row.longId, row.shortId, row.price) = (longId, shortId, uint64(terms.price));
        (row.product, row.windowStart) = (uint32(terms.product), uint32(terms.windowStart));
        (row.windowSeconds, row.units) = (uint24(terms.windowSeconds), pair.units);
        (row.longMargin, row.shortMargin) = (uint56(longMargin), uint56(shortMargin));
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

    /// @dev What the two orders say, without a look at any state.
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
        if (units == 0 || units > UNITS_MAX || units > buy.units || units > sell.units) return SkipCode.WRONG_COUNT;
        if (block.timestamp > buy.startBy || block.timestamp > sell.startBy) return SkipCode.EXPIRED;
        return SkipCode.NONE;
    }

    function _isOf(Terms memory terms, FutureOrder calldata order) private pure returns (bool) {
        return order.product == terms.product && order.windowStart == terms.windowStart
            && order.windowSeconds == terms.windowSeconds;
    }

    /// @dev Whether LeaseBook would take the margin and the nonce, so that asking it for both cannot fail for one pair.
    function _able(address trader, uint32 nonce, uint256 margin) private view returns (uint32 id, SkipCode) {
        Account memory account = BOOK.accountOf(trader);
        if (account.cash < margin) return (0, SkipCode.CASH_TOO_LOW);
        AccountWord word = AccountWord.wrap(0).withNonces(account.nonceBase, account.nonceBits);
        (, bool usable) = NonceWindow.use(word, nonce);
        return (account.id, usable ? SkipCode.NONE : SkipCode.NONCE_USED);
    }

    function _enter(address trader, uint32 nonce, uint64 margin) private {
        BOOK.useNonce(trader, nonce);
        BOOK.takeCash(trader, margin);
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
        _enter(joiner, assignment.nonce, margin);
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

    // ---------------------------------------------------------------------------------------------- ends

    /// @inheritdoc IFutures
    function settleDefault(uint40 contractId) external {
        Row memory row = _rowOf(contractId);
        uint256 opensAt = deadlineOf(row.windowStart, row.windowSeconds) + 1;
        if (block.timestamp < opensAt) revert Futures_TooEarly(opensAt);
        bool nominated = row.machines != 0;
        if (row.funded && nominated) revert Futures_NoDefault(contractId);
        (uint256 toLong, uint256 toShort) = (row.longMargin, row.shortMargin);
        ContractEnd end = ContractEnd.BOTH_DEFAULT;
        if (row.funded) {
            end = ContractEnd.SHORT_DEFAULT;
            (toLong, toShort) = (toLong + toShort + _capOf(row) * row.units, 0);
        } else if (nominated) {
            end = ContractEnd.LONG_DEFAULT;
            (toLong, toShort) = (0, toLong + toShort);
        }
        _endWith(contractId, row, end, toLong, toShort);
    }

    /// @inheritdoc IFutures
    function lapse(uint40 contractId) external {
        Row memory row = _rowOf(contractId);
        if (!row.funded || row.machines == 0) revert Futures_NotReady(contractId);
        uint256 opensAt = row.windowStart + START_WINDOW + 1;
        if (block.timestamp < opensAt) revert Futures_TooEarly(opensAt);
        uint256 toLong = row.longMargin + _capOf(row) * row.units;
        _endWith(contractId, row, ContractEnd.LAPSED, toLong, row.shortMargin);
    }

    function _endWith(uint40 contractId, Row memory row, ContractEnd end, uint256 toLong, uint256 toShort) private {
        delete _contracts[contractId];
        _give(row.longId, toLong);
        _give(row.shortId, toShort);
        emit FutureEnded({contractId: contractId, end: end, toLong: uint64(toLong), toShort: uint64(toShort)});
    }

    // ---------------------------------------------------------------------------------------------- delivery

    /// @inheritdoc IFutures
    function deliver(uint40 contractId, uint32[] calldata indexes) external {
        // Checks
        Row memory row = _rowOf(contractId);
        if (!row.funded || row.machines == 0) revert Futures_NotReady(contractId);
        if (_machinesOf(indexes) != row.machines) revert Futures_NotNominated(contractId);
        if (block.timestamp < row.windowStart) revert Futures_TooEarly(row.windowStart);
        uint256 closesAt = row.windowStart + START_WINDOW;
        if (block.timestamp > closesAt) revert Futures_TooLate(closesAt);
        // Effects, and interactions with the book alone
        delete _contracts[contractId];
        uint256 longPart = MarginLib.part(row.longMargin, row.units);
        uint256 shortPart = MarginLib.part(row.shortMargin, row.units);
        uint256 delivered = _openLeases(contractId, row, indexes, longPart, shortPart);
        uint256 missing = row.units - delivered;
        uint256 toLong = missing * (_capOf(row) + shortPart) + row.longMargin - delivered * longPart;
        uint256 toShort = row.shortMargin - row.units * shortPart;
        _give(row.longId, toLong);
        _give(row.shortId, toShort);
        emit FutureDelivered({
            contractId: contractId, delivered: uint16(delivered), toLong: uint64(toLong), toShort: uint64(toShort)
        });
    }

    function _openLeases(
        uint40 contractId,
        Row memory row,
        uint32[] calldata indexes,
        uint256 longPart,
        uint256 shortPart
    ) private returns (uint256 delivered) {
        address short = BOOK.addressOf(row.shortId);
        Opening memory opening = Opening({
            buyer: BOOK.addressOf(row.longId),
            product: row.product,
            price: row.price,
            duration: row.windowSeconds,
            marketId: 0,
            name: bytes32(uint256(contractId))
        });
        Unit memory unit = Unit({
            contractId: contractId,
            longId: row.longId,
            shortId: row.shortId,
            longMargin: uint48(longPart),
            shortMargin: uint48(shortPart),
            end: UnitEnd.RUNNING,
            left: 0,
            windowSeconds: row.windowSeconds
        });
        for (uint256 i; i < indexes.length; ++i) {
            MachineKey machine = machineKeyOf(short, indexes[i]);
            (SkipCode code, uint24 seq) = BOOK.openFirm(machine, opening);
            if (code != SkipCode.NONE) {
                emit UnitFailed({contractId: contractId, machineKey: machine, code: code});
                continue;
            }
            ++delivered;
            _units[machine][seq] = unit;
            emit UnitDelivered({
                contractId: contractId,
                machineKey: machine,
                seq: seq,
                longMargin: unit.longMargin,
                shortMargin: unit.shortMargin
            });
        }
    }

    /// @inheritdoc IFirmLeases
    function leaseEnded(MachineKey machineKey, uint24 seq, CloseReason reason, uint24 left) external {
        if (msg.sender != address(BOOK)) revert Futures_NotOwner(msg.sender);
        Unit storage unit = _units[machineKey][seq];
        UnitEnd end = _endOf(reason);
        (unit.end, unit.left) = (end, left);
        emit UnitEnded({contractId: unit.contractId, machineKey: machineKey, seq: seq, end: end, left: left});
    }

    function _endOf(CloseReason reason) private pure returns (UnitEnd) {
        if (reason == CloseReason.STOPPED || reason == CloseReason.BUYER_NO_SHOW) return UnitEnd.BROKEN_BY_LONG;
        if (reason == CloseReason.END_OF_TIME || reason == CloseReason.EXPIRED) return UnitEnd.HELD;
        return UnitEnd.BROKEN_BY_SHORT;
    }

    /// @inheritdoc IFutures
    function settleUnit(address provider, uint32 index, uint24 seq) external {
        MachineKey machine = machineKeyOf(provider, index);
        Unit memory unit = _units[machine][seq];
        if (unit.contractId == 0) revert Futures_NoUnit(machine, seq);
        if (unit.end == UnitEnd.RUNNING) revert Futures_StillRunning(machine, seq);
        delete _units[machine][seq];
        uint256 window = unit.windowSeconds;
        (uint256 toLong, uint256 toShort) = (unit.longMargin, unit.shortMargin);
        if (unit.end == UnitEnd.BROKEN_BY_LONG) {
            uint256 lost = MarginLib.forfeit(toLong, unit.left, window);
            (toLong, toShort) = (toLong - lost, toShort + lost);
        } else if (unit.end == UnitEnd.BROKEN_BY_SHORT) {
            uint256 lost = MarginLib.forfeit(toShort, unit.left, window);
            (toLong, toShort) = (toLong + lost, toShort - lost);
        }
        _give(unit.longId, toLong);
        _give(unit.shortId, toShort);
        emit UnitSettled({
            contractId: unit.contractId,
            machineKey: machine,
            seq: seq,
            toLong: uint64(toLong),
            toShort: uint64(toShort)
        });
    }

    // ---------------------------------------------------------------------------------------------- lookups

    function _rowOf(uint40 contractId) private view returns (Row storage row) {
        row = _contracts[contractId];
        if (row.longId == 0) revert Futures_NoContract(contractId);
    }

    /// @dev Bound: units * cap < 2^54.
    function _capOf(Row memory row) private view returns (uint256) {
        return SettlementLib.costDown(row.price, BOOK.productOf(row.product).sliceGpus, row.windowSeconds);
    }

    function _give(uint32 id, uint256 amount) private {
        if (amount != 0) BOOK.giveCash(BOOK.addressOf(id), uint64(amount));
    }

    /// @dev 144 bits of a hash fill the row's slot; a short that finds two lists of one hash may deliver either.
    function _machinesOf(uint32[] calldata indexes) private pure returns (bytes18) {
        return bytes18(keccak256(abi.encode(indexes)));
    }

    // ---------------------------------------------------------------------------------------------- views

    /// @inheritdoc IFutures
    function deadlineOf(uint32 windowStart, uint24 windowSeconds) public view returns (uint256) {
        uint256 lead = windowSeconds < 1 days ? LEAD_SHORT : LEAD;
        return windowStart > lead ? windowStart - lead : 0;
    }

    /// @inheritdoc IFutures
    function contractOf(uint40 contractId) external view returns (FutureContract memory) {
        Row memory row = _contracts[contractId];
        return FutureContract({
            long: BOOK.addressOf(row.longId),
            short: BOOK.addressOf(row.shortId),
            series: Series({product: row.product, windowStart: row.windowStart, windowSeconds: row.windowSeconds}),
            price: row.price,
            units: row.units,
            longMargin: row.longMargin,
            shortMargin: row.shortMargin,
            funded: row.funded,
            nominated: row.machines != 0
        });
    }

    /// @inheritdoc IFutures
    function unitOf(address provider, uint32 index, uint24 seq) external view returns (FutureUnit memory found) {
        Unit memory unit = _units[machineKeyOf(provider, index)][seq];
        if (unit.contractId == 0) return found;
        return FutureUnit({
            contractId: unit.contractId,
            long: BOOK.addressOf(unit.longId),
            short: BOOK.addressOf(unit.shortId),
            longMargin: unit.longMargin,
            shortMargin: unit.shortMargin,
            end: unit.end,
            left: unit.left,
            windowSeconds: unit.windowSeconds
        });
    }

    /// @inheritdoc IFutures
    function rules() external view returns (FuturesRules memory) {
        return FuturesRules({
            longBps: LONG_BPS, shortBps: SHORT_BPS, marginFloor: MARGIN_FLOOR, lead: LEAD, leadShort: LEAD_SHORT
        });
    }

    /// @inheritdoc IFutures
    function contractCount() external view returns (uint40) {
        return _contractCount;
    }

    /// @inheritdoc IFutures
    function leaseBook() external view returns (address) {
        return address(BOOK);
    }

    /// @inheritdoc IFutures
    function DOMAIN_SEPARATOR() external view returns (bytes32) {
        return _domainSeparatorV4();
    }
}
