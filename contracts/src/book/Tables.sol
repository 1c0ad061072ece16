// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseOffice} from "../interfaces/ILeaseOffice.sol";
import {CHALLENGE, INTERRUPTIBLE, VERIFIED} from "../types/Flags.sol";
import {Market, Product} from "../types/Rows.sol";
import {Accounts} from "./Accounts.sol";

/// @title Tables: products and markets
/// @dev Rows are only ever added, so an order that names a row knows its rules for good. The burnt fee keeps the
/// tables from being filled for fun.
abstract contract Tables is Accounts {
    uint256 internal constant FEE_BPS_MAX = 1000;

    /// @inheritdoc ILeaseOffice
    function registerProduct(Product calldata product) external nonReentrant returns (uint32 id) {
        if (product.gpuClass == 0) revert LeaseBook_BadProduct("gpuClass");
        if (product.sliceGpus == 0) revert LeaseBook_BadProduct("sliceGpus");
        if (product.penaltyBps > product.minBondBps) revert LeaseBook_BadProduct("penaltyBps");
        if (product.flags & ~(INTERRUPTIBLE | VERIFIED | CHALLENGE) != 0) revert LeaseBook_BadProduct("flags");
        id = ++_productCount;
        _products[id] = product;
        emit ProductRegistered({id: id, by: msg.sender, product: product});
        _burnFee();
    }

    /// @inheritdoc ILeaseOffice
    function registerMarket(uint16 feeBps) external nonReentrant returns (uint16 id) {
        if (_accounts[msg.sender].id() == 0) revert LeaseBook_NotRegistered(msg.sender);
        if (feeBps > FEE_BPS_MAX) revert LeaseBook_FeeTooHigh({feeBps: feeBps, limit: FEE_BPS_MAX});
        if (_marketCount == type(uint16).max) revert LeaseBook_TableFull();
        id = ++_marketCount;
        _markets[id] = Market({account: msg.sender, feeBps: feeBps});
        emit MarketRegistered({id: id, account: msg.sender, feeBps: feeBps});
        _burnFee();
    }
}
