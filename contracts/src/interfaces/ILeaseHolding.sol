// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Held, Payout} from "../types/Audits.sol";
import {MachineKey} from "../types/MachineKey.sol";
import {ILeaseBookLog} from "./ILeaseBookLog.sol";

/// @title ILeaseHolding: the pay of verified leases, held until Verification ends their batches
/// @notice Vouchers of a verified lease pay into one of four slots of its machine (lease number mod 4). The next
/// lease of that slot opens only when it is empty again.
interface ILeaseHolding is ILeaseBookLog {
    /// @notice Returns to the buyer what nobody committed to; anyone may, {commitWindow} after the lease's end.
    /// @dev Emits {HeldReturned}. Requirements: that lease ended and holds pay.
    function returnHeld(address provider, uint32 index, uint24 seq) external;

    // ------------------------------------------------------------------------------- for Verification alone

    /// @notice Takes all held pay of a lease, and its part of the audit share, into batch `batchNo`.
    /// @dev Requirements: the caller is {verification}; something is held; `batchNo` is the lease's next; the lease
    /// runs, or ended at most {commitWindow} ago.
    function takeHeld(MachineKey machineKey, uint24 seq, uint16 batchNo)
        external
        returns (uint256 amount, uint256 audit, uint32 buyerId, uint16 marketId);

    /// @notice Pays out money that {takeHeld} took.
    /// @dev Requirements: the caller is {verification}; no more than was taken in all.
    /// @return fee What the market got out of `payout.pay`.
    function payHeld(MachineKey machineKey, Payout calldata payout) external returns (uint256 fee);

    /// @notice Locks at least `amount` of a machine's bond, in whole bond units.
    /// @dev Requirements: the caller is {verification}; so much is free.
    /// @return locked `amount`, rounded up.
    function lockBond(MachineKey machineKey, uint256 amount) external returns (uint256 locked);

    /// @notice Frees what {lockBond} locked.
    /// @dev Requirements: the caller is {verification}.
    function unlockBond(MachineKey machineKey, uint256 amount) external;

    /// @notice Takes from the free bond, as far as it goes: first `refund` for an account, then `fine`, which is burnt.
    /// @dev Emits {BondSlashed}. Requirements: the caller is {verification}. The bond falls by whole bond units, the
    /// change is the provider's cash.
    function slashBond(MachineKey machineKey, uint32 buyerId, uint256 refund, uint256 fine)
        external
        returns (uint256 refunded, uint256 burnt);

    // ----------------------------------------------------------------------------------------------- views

    function heldOf(address provider, uint32 index, uint24 seq) external view returns (Held memory);
    /// @notice What batches that have not ended hold in all, audit shares included.
    function batched() external view returns (uint64);
    /// @notice The module; zero: no lease here is verified.
    function verification() external view returns (address);
    /// @notice Seconds from a lease's end to {returnHeld}.
    function commitWindow() external view returns (uint32);
}
