// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Commit, Leaf, Results, Sibling, Verdict} from "../types/Audits.sol";
import {MachineKey} from "../types/MachineKey.sol";

/// @title AuditLib: hashes and proofs of audits, equal to `cloud_gpu/protocol/audit.py`
/// @dev A Merkle sum tree: a node's hash covers both children and the weight under each, so that a proof also shows
/// which interval of 0 to 10^6 a leaf covers. The last node of an odd level goes up unchanged.
library AuditLib {
    uint256 internal constant WEIGHT_ONE = 1_000_000;
    uint256 internal constant SEGMENTS_MAX = 100;

    bytes32 internal constant COMMIT =
        keccak256("Commit(address provider,uint32 index,uint24 seq,uint16 batchNo,bytes32 root,uint16 n)");
    bytes32 internal constant VERDICT = keccak256(
        "Verdict(address provider,uint32 index,uint24 seq,uint16 batchNo,uint16 i,bytes32 leaf,bytes32 digest,uint8 result)"
    );
    bytes32 internal constant RESULTS =
        keccak256("Results(address provider,uint32 index,uint24 seq,uint16 batchNo,uint128 incomparable)");

    function hash(Commit calldata value) internal pure returns (bytes32) {
        return keccak256(abi.encode(COMMIT, value));
    }

    function hash(Verdict calldata value) internal pure returns (bytes32) {
        return keccak256(abi.encode(VERDICT, value));
    }

    function hash(Results calldata value) internal pure returns (bytes32) {
        return keccak256(abi.encode(RESULTS, value));
    }

    function leaseKey(MachineKey machineKey, uint24 seq) internal pure returns (bytes32) {
        return keccak256(abi.encode(machineKey, seq));
    }

    function batchKey(bytes32 leaseKey_, uint16 batchNo) internal pure returns (bytes32) {
        return keccak256(abi.encode(leaseKey_, batchNo));
    }

    /// @dev Bound to chain, contract and lease, so that nobody's leaf is of use to anybody else; hashed twice, so that
    /// no inner node can pass for one.
    function hashLeaf(address verification, Leaf calldata leaf) internal view returns (bytes32) {
        return keccak256(abi.encode(keccak256(abi.encode(block.chainid, verification, leaf))));
    }

    /// @notice Whether leaf `i` of `n` lies under the root, and where its interval starts; it ends at start + weight.
    function prove(bytes32 root, uint256 n, uint256 i, bytes32 leaf, uint256 weight, Sibling[] calldata proof)
        internal
        pure
        returns (bool ok, uint256 start)
    {
        if (i >= n || n > SEGMENTS_MAX || weight == 0 || weight > WEIGHT_ONE) return (false, 0);
        (bytes32 node, uint256 width, uint256 step) = (leaf, n, 0);
        for (; width > 1; width = (width + 1) / 2) {
            if (i ^ 1 < width) {
                if (step == proof.length) return (false, 0);
                Sibling calldata other = proof[step++];
                if (weight + other.weight > WEIGHT_ONE) return (false, 0);
                if (i % 2 == 0) {
                    node = _parent(node, other.hash, weight, other.weight);
                } else {
                    node = _parent(other.hash, node, other.weight, weight);
                    start += other.weight;
                }
                weight += other.weight;
            }
            i /= 2;
        }
        ok = step == proof.length && weight == WEIGHT_ONE && _root(node, weight, n) == root;
        if (!ok) start = 0;
    }

    /// @dev The weights fit: both are at most WEIGHT_ONE.
    function _parent(bytes32 left, bytes32 right, uint256 leftWeight, uint256 rightWeight)
        private
        pure
        returns (bytes32)
    {
        return keccak256(abi.encodePacked(left, right, uint32(leftWeight), uint32(rightWeight)));
    }

    function _root(bytes32 top, uint256 weight, uint256 n) private pure returns (bytes32) {
        return keccak256(abi.encodePacked(top, uint32(weight), uint16(n)));
    }

    function seedOf(bytes32 blockHash, bytes32 preimage, bytes32 root, bytes32 key) internal pure returns (bytes32) {
        return keccak256(abi.encode(blockHash, preimage, root, key));
    }

    /// @notice The seed of a draw that the verifier did not come to.
    function fallbackSeedOf(bytes32 blockHash, bytes32 root, bytes32 key) internal pure returns (bytes32) {
        return keccak256(abi.encode(blockHash, root, key));
    }

    /// @notice The j-th point of a draw: the segment whose interval holds it is audited.
    function drawPoint(bytes32 seed, uint256 j) internal pure returns (uint256) {
        return uint256(keccak256(abi.encodePacked(seed, "idx", j))) % WEIGHT_ONE;
    }
}
