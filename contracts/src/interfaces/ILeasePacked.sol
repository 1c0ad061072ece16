// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "./ILeaseBookLog.sol";

/// @title ILeasePacked: the everyday calls of a lease in calldata without padding
/// @notice The same as {ILeaseTrading}, for less gas: what all entries share is said once, signatures take 64 bytes
/// (EIP-2098). `PackedBatch` lays out the entries.
interface ILeasePacked is ILeaseBookLog {
    /// @notice {ILeaseTrading.openBatch} by the orders' matcher in calldata without padding ({PackedBatch}: 256 bytes a match).
    /// @dev Signatures by keys only. A bid that names another provider than the ask's cannot be said here.
    function openPacked(uint32 product, uint64 price, uint16 marketId, bytes calldata data) external;

    /// @notice Starts leases of one provider in calldata without padding ({PackedBatch}: 75 bytes a lease).
    /// @dev Emits {LeaseStarted} or {EntrySkipped} per entry. Requirements: the caller is the provider or its Node
    /// key, whose call stands for the Ready. Of an entry: as of {ILeaseTrading.begin}.
    function beginPacked(address provider, bytes calldata data) external;

    /// @notice {ILeaseTrading.closeBatch} in calldata without padding ({PackedBatch}: 97 bytes a lease, 161 with Finals).
    /// @param withFinals Whether every entry carries the provider's signature; without, the caller is the provider or
    /// its Node key, or the voucher pays the whole cap.
    function closePacked(bytes calldata data, bool withFinals) external;

    /// @notice EIP-712 domain separator of ("LeaseBook", "1", chain, this contract).
    function DOMAIN_SEPARATOR() external view returns (bytes32);
}
