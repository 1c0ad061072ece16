// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBookPart} from "./IBookPart.sol";
import {ILeaseHolding} from "./ILeaseHolding.sol";
import {ILeaseModules} from "./ILeaseModules.sol";
import {ILeaseOffice} from "./ILeaseOffice.sol";
import {ILeasePacked} from "./ILeasePacked.sol";
import {ILeaseTrading} from "./ILeaseTrading.sol";

/// @title LeaseBook: the vault, the machines and their leases
/// @notice Holds every token of the marketplace. A buyer's signed bid and a provider's signed ask, paired by a market
/// within both limits, open a lease and lock its price; vouchers move it, never ahead of the clock; every state has
/// an exit that anyone may take after a time-out. Nobody arbitrates, nobody can change a rule.
/// @dev Amounts are base units of the token, prices base units per GPU-hour, bonds whole tokens, times Unix seconds,
/// durations seconds, shares basis points. A lease is named by (provider, index, seq) everywhere.
///
/// Assumptions (safety): the token neither takes a fee on transfer nor changes balances by itself; block timestamps
/// are honest to the minute. Assumptions (liveness): a transaction is included within the claim window.
interface ILeaseBook is IBookPart, ILeasePacked, ILeaseTrading, ILeaseOffice, ILeaseHolding, ILeaseModules {}
