// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {CloseReason} from "../types/Lifecycle.sol";
import {MachineKey} from "../types/MachineKey.sol";

/// @title IFirmLeases: what LeaseBook tells Futures about the leases that margins stand behind
interface IFirmLeases {
    /// @notice A firm lease ended, or was stopped, with `left` seconds of its duration unused.
    /// @dev Told once a lease. Only writes it down: pays nothing, calls nobody, and never reverts for LeaseBook, since
    /// no lease may be kept from ending. Requirements: the caller is LeaseBook.
    /// @param reason Why; STOPPED also where both agreed to end early.
    function leaseEnded(MachineKey machineKey, uint24 seq, CloseReason reason, uint24 left) external;
}
