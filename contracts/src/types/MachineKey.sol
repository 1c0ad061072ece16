// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @notice A machine's name: provider (160 bits, high) and index (32 bits, low). The owner is in the key.
type MachineKey is bytes32;

function machineKeyOf(address provider, uint32 index) pure returns (MachineKey) {
    return MachineKey.wrap(bytes32((uint256(uint160(provider)) << 96) | index));
}
