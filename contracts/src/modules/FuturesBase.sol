// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IFutures} from "../interfaces/IFutures.sol";
import {ILeaseBook} from "../interfaces/ILeaseBook.sol";
import {SettlementLib} from "../libraries/SettlementLib.sol";
import {FuturesRules} from "../types/Futures.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";

/// @title FuturesBase: what Futures stores of a contract, and what its calls share
abstract contract FuturesBase is IFutures, EIP712 {
    uint256 private constant LEAD_MAX = 7 days;
    /// @dev With it a unit's part of a margin stays below 2^48, like a unit's price.
    uint256 private constant MARGIN_BPS_MAX = 5000;

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

    ILeaseBook internal immutable BOOK;
    uint256 internal immutable START_WINDOW;
    uint16 internal immutable LONG_BPS;
    uint16 internal immutable SHORT_BPS;
    uint48 internal immutable MARGIN_FLOOR;
    uint32 internal immutable LEAD;
    uint32 internal immutable LEAD_SHORT;

    uint40 internal _contractCount;
    mapping(uint40 contractId => Row) internal _contracts;

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

    // ---------------------------------------------------------------------------------------------- lookups

    function _rowOf(uint40 contractId) internal view returns (Row storage row) {
        row = _contracts[contractId];
        if (row.longId == 0) revert Futures_NoContract(contractId);
    }

    /// @dev Bound: units * cap < 2^54.
    function _capOf(Row memory row) internal view returns (uint256) {
        return SettlementLib.costDown(row.price, BOOK.productOf(row.product).sliceGpus, row.windowSeconds);
    }

    function _give(uint32 id, uint256 amount) internal {
        if (amount != 0) BOOK.giveCash(BOOK.addressOf(id), uint64(amount));
    }

    /// @dev 144 bits of a hash fill the row's slot; a short that finds two lists of one hash may deliver either.
    function _machinesOf(uint32[] calldata indexes) internal pure returns (bytes18) {
        return bytes18(keccak256(abi.encode(indexes)));
    }

    /// @inheritdoc IFutures
    function deadlineOf(uint32 windowStart, uint24 windowSeconds) public view returns (uint256) {
        uint256 lead = windowSeconds < 1 days ? LEAD_SHORT : LEAD;
        return windowStart > lead ? windowStart - lead : 0;
    }
}
