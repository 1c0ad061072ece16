// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {AuditLib} from "../src/libraries/AuditLib.sol";
import {Leaf, Sibling} from "../src/types/Audits.sol";
import {machineKeyOf} from "../src/types/MachineKey.sol";
import {stdJson} from "forge-std/StdJson.sol";
import {Test} from "forge-std/Test.sol";

/// @dev The library as a contract, since it reads calldata.
contract AuditHashes {
    function leaf(address verification, Leaf calldata value) external view returns (bytes32) {
        return AuditLib.hashLeaf(verification, value);
    }

    function prove(bytes32 root, uint256 n, uint256 i, bytes32 hash, uint256 weight, Sibling[] calldata proof)
        external
        pure
        returns (bool ok, uint256 start)
    {
        return AuditLib.prove(root, n, i, hash, weight, proof);
    }
}

/// @dev tests/vectors/audit.json: what a node's tree gives, the contract proves.
contract AuditVectors is Test {
    using stdJson for string;

    AuditHashes private hashes;
    string private json;

    function setUp() external {
        hashes = new AuditHashes();
        json = vm.readFile("../tests/vectors/audit.json");
    }

    function test_vectors_whenBatchesAreProven_thenEqualPythons() external {
        uint256 rows;
        while (this.checkRow(rows)) ++rows;
        assertGe(rows, 10, "vectors are missing");
    }

    /// @return Whether there is a row `k`.
    function checkRow(uint256 k) external view returns (bool) {
        string memory row = string.concat(".cases[", vm.toString(k), "]");
        if (!vm.keyExistsJson(json, row)) return false;
        Leaf memory leaf = _leaf(row);
        bytes32 hash = hashes.leaf(json.readAddress(string.concat(row, ".contract")), leaf);
        assertEq(hash, _b32(row, "leaf"), "leaf");
        bytes32 leaseKey = AuditLib.leaseKey(machineKeyOf(leaf.provider, leaf.index), leaf.seq);
        assertEq(AuditLib.batchKey(leaseKey, leaf.batchNo), _b32(row, "batchKey"), "batch key");

        (bytes32 root, uint256 n, Sibling[] memory proof) = (_b32(row, "root"), _uint(row, "n"), _proof(row));
        (bool ok, uint256 start) = hashes.prove(root, n, leaf.i, hash, leaf.weight, proof);
        assertTrue(ok, "the proof does not lead to the root");
        assertEq(start, _uint(row, "start"), "start");
        (ok,) = hashes.prove(root, n, leaf.i, hash, leaf.weight - 1, proof);
        assertFalse(ok, "another weight");
        (ok,) = hashes.prove(root, n, leaf.i + 1, hash, leaf.weight, proof);
        assertFalse(ok, "another place");
        (ok,) = hashes.prove(root, n + 1, leaf.i, hash, leaf.weight, proof);
        assertFalse(ok, "another number of segments");

        string[] memory points = json.readStringArray(string.concat(row, ".points"));
        for (uint256 j; j < points.length; ++j) {
            assertEq(AuditLib.drawPoint(_b32(row, "seed"), j), vm.parseUint(points[j]), "point");
        }
        return true;
    }

    function _leaf(string memory row) private view returns (Leaf memory) {
        return Leaf({
            provider: json.readAddress(string.concat(row, ".provider")),
            index: uint32(_uint(row, "index")),
            seq: uint24(_uint(row, "seq")),
            batchNo: uint16(_uint(row, "batchNo")),
            i: uint16(_uint(row, "i")),
            weight: uint32(_uint(row, "weight")),
            job: _b32(row, "job"),
            result: _b32(row, "result"),
            salt: _b32(row, "salt")
        });
    }

    function _proof(string memory row) private view returns (Sibling[] memory proof) {
        bytes32[] memory found = json.readBytes32Array(string.concat(row, ".proofHashes"));
        string[] memory under = json.readStringArray(string.concat(row, ".proofWeights"));
        proof = new Sibling[](found.length);
        for (uint256 i; i < found.length; ++i) {
            proof[i] = Sibling(found[i], uint32(vm.parseUint(under[i])));
        }
    }

    function _uint(string memory row, string memory name) private view returns (uint256) {
        return vm.parseUint(json.readString(string.concat(row, ".", name)));
    }

    function _b32(string memory row, string memory name) private view returns (bytes32) {
        return json.readBytes32(string.concat(row, ".", name));
    }
}
