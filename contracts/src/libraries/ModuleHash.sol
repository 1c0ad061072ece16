// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Assignment, FutureOrder} from "../types/Futures.sol";
import {Campaign, Pledge} from "../types/GroupBuys.sol";

/// @title ModuleHash: EIP-712 struct hashes of what Futures and GroupBuy read signed, equal to `cloud_gpu.protocol`
library ModuleHash {
    bytes32 internal constant FUTURE_ORDER = keccak256(
        "FutureOrder(address trader,bool isBuy,uint32 product,uint32 windowStart,uint24 windowSeconds,uint16 units,uint64 limitPricePerHour,uint32 startBy,uint32 nonce,address matcher)"
    );
    bytes32 internal constant ASSIGNMENT = keccak256(
        "Assignment(uint40 contractId,bool isBuy,address leaver,address joiner,uint64 leaverPays,uint64 joinerPays,uint32 expiry,uint32 nonce)"
    );
    bytes32 internal constant PLEDGE =
        keccak256("Pledge(address buyer,bytes32 campaignId,uint48 maxAmount,uint16 slices,uint32 nonce)");

    function hash(FutureOrder calldata value) internal pure returns (bytes32) {
        return keccak256(abi.encode(FUTURE_ORDER, value));
    }

    function hash(Assignment calldata value) internal pure returns (bytes32) {
        return keccak256(abi.encode(ASSIGNMENT, value));
    }

    function hash(Pledge calldata value) internal pure returns (bytes32) {
        return keccak256(abi.encode(PLEDGE, value));
    }

    /// @dev Bound to chain and contract, since buyers sign it inside a pledge and agree on it outside.
    function campaignId(address groupBuy, Campaign calldata value) internal view returns (bytes32) {
        return keccak256(abi.encode(block.chainid, groupBuy, value));
    }

    function providersHash(address[] calldata providers) internal pure returns (bytes32) {
        return keccak256(abi.encode(providers));
    }
}
