// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {SkipCode} from "../types/Lifecycle.sol";
import {MachineKey} from "../types/MachineKey.sol";
import {Ask} from "../types/Orders.sol";
import {Opening} from "../types/Rows.sol";
import {ILeaseBookLog} from "./ILeaseBookLog.sol";

/// @title ILeaseModules: what Futures and GroupBuy may do here
/// @notice They hold no tokens: margins, funded prices and pledges stay in this vault, counted a module each. A module
/// can never give out more than it took, and never touches a bond, a running lease or held pay.
interface ILeaseModules is ILeaseBookLog {
    // --------------------------------------------------------------------------- for Futures and GroupBuy alone

    /// @notice Moves `amount` of an account's cash to what the module holds.
    /// @dev Emits {ModuleTook}. Requirements: the caller is a module; the cash covers it. The module asks for what the
    /// account signed or is calling for, and no more.
    function takeCash(address account, uint64 amount) external;

    /// @notice Moves `amount` of what the module holds to an account's cash.
    /// @dev Emits {ModuleGave}. Requirements: the caller is a module; it holds that much; the account is registered.
    function giveCash(address account, uint64 amount) external;

    /// @notice Uses a nonce of an account: orders to modules share the window of its bids, so {cancelOne} and
    /// {cancelBelow} void them too.
    /// @dev Requirements: the caller is a module; the account is registered; the nonce is usable.
    function useNonce(address account, uint32 nonce) external;

    /// @notice Opens a firm lease whose price comes out of what Futures holds.
    /// @dev Emits {ModuleGave} and {LeaseOpened}. Returns a code, with nothing changed, where {openBatch} would skip:
    /// the machine is of the product and Free or Paused (a nominated machine may wait off the market), a lease number
    /// is left, the cap is 1 to 2^48-1, the free bond covers minBondBps of it, buyer and provider differ.
    /// Requirements: the caller is Futures, and holds the cap; the buyer is registered.
    /// @return seq The lease's number.
    function openFirm(MachineKey machineKey, Opening calldata opening) external returns (SkipCode, uint24 seq);

    /// @notice Opens a lease of a signed ask whose price comes out of what GroupBuy holds.
    /// @dev As {openFirm}, of a Free machine; and the ask's own limits hold as in {openBatch}: product, price,
    /// duration, startBy, fee, number, flags, signature; its matcher is GroupBuy. Requirements: the caller is GroupBuy,
    /// and holds the cap; the buyer is registered.
    function openPledged(Ask calldata ask, bytes calldata signature, Opening calldata opening)
        external
        returns (SkipCode);

    // ----------------------------------------------------------------------------------------------- views

    /// @notice The module for futures; zero: none.
    function futures() external view returns (address);
    /// @notice The module for group buys; zero: none.
    function groupBuy() external view returns (address);
    /// @notice What a module holds of this vault, base units.
    function moduleCash(address module) external view returns (uint64);
}
