// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IFirmLeases} from "../interfaces/IFirmLeases.sol";
import {IFutures} from "../interfaces/IFutures.sol";
import {ILeaseBook} from "../interfaces/ILeaseBook.sol";
import {MarginLib} from "../libraries/MarginLib.sol";
import {ContractEnd, FutureContract, FutureUnit, FuturesRules, Series, UnitEnd} from "../types/Futures.sol";
import {CloseReason, SkipCode} from "../types/Lifecycle.sol";
import {MachineKey, machineKeyOf} from "../types/MachineKey.sol";
import {Opening} from "../types/Rows.sol";
import {FuturesBase} from "./FuturesBase.sol";
import {FuturesTrading} from "./FuturesTrading.sol";

/// @title Futures (see {IFutures})
/// @dev Here: how a contract ends, by delivery or without; {FuturesTrading} is what comes before. No owner and no way
/// to change anything. LeaseBook is ours and calls nobody but {leaseEnded} and the token, so what this contract asks of
/// it returns before anybody else acts.
contract Futures is FuturesTrading {
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

    mapping(MachineKey => mapping(uint24 seq => Unit)) private _units;

    /// @param book_ Must name this contract as its futures module.
    constructor(ILeaseBook book_, FuturesRules memory rules_) FuturesBase(book_, rules_) {}

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

    // ---------------------------------------------------------------------------------------------- views

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
