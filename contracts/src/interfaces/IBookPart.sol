// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title IBookPart: one of the contracts that together are LeaseBook
interface IBookPart {
    /// @notice keccak256 of the ABI-encoded constructor arguments that all parts of a book share.
    function settings() external view returns (bytes32);
}
