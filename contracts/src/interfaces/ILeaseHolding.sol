// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Held, Payout, Slash} from "../types/Audits.sol";
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

    /// @notice Takes all held pay of a lease into batch `batchNo` and locks `times` as much of the machine's bond.
    /// @dev Requirements: the caller is {verification}; `signer` is the provider or its Node key, and the provider is
    /// not barred; something is held; `batchNo` is the lease's next; the lease runs, or ended at most {commitWindow}
    /// ago; so much of the bond is free.
    /// @return amount What was held. The audit share of it, rounded down, was taken beside it.
    /// @return auditBps The rate of that share.
    /// @return buyerId Whose lease it was.
    /// @return marketId Whose fee it owes.
    /// @return units The lock, in whole bond units, rounded up.
    function takeHeld(MachineKey machineKey, uint24 seq, uint16 batchNo, address signer, uint256 times)
        external
        returns (uint256 amount, uint256 auditBps, uint32 buyerId, uint16 marketId, uint256 units);

    /// @notice Pays out money that {takeHeld} took, and frees `payout.unlock` units of the bond.
    /// @dev Requirements: the caller is {verification}; no more than was taken and locked in all.
    /// @return fee What the market got out of `payout.pay`.
    function payHeld(MachineKey machineKey, Payout calldata payout) external returns (uint256 fee);

    /// @notice Frees `slash.unlock` units of the bond, then takes from the free bond, as far as it goes: first
    /// `slash.fromBond` for the buyer, then `slash.fine`, which is burnt but for `slash.bounty` (at most a tenth).
    /// @dev Emits {BondSlashed}. Requirements: the caller is {verification}; no more than was taken and locked in all.
    /// The bond falls by whole bond units, the change is the provider's cash.
    /// @return refunded To the buyer, out of the bond.
    /// @return fine With the bounty.
    /// @return bounty What of it was not burnt.
    function slashBond(MachineKey machineKey, Slash calldata slash)
        external
        returns (uint256 refunded, uint256 fine, uint256 bounty);

    // ----------------------------------------------------------------------------------------------- views

    function heldOf(address provider, uint32 index, uint24 seq) external view returns (Held memory);
    /// @notice Whether fraud cost the provider its verified leases, on every machine and for good.
    function isBarred(address provider) external view returns (bool);
    /// @notice What batches that have not ended hold in all, audit shares included.
    function batched() external view returns (uint64);
    /// @notice The module; zero: no lease here is verified.
    function verification() external view returns (address);
    /// @notice Seconds from a lease's end to {returnHeld}.
    function commitWindow() external view returns (uint32);
}
