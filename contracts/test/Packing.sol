// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Accept, Ask, Bid, SignedMatch, Voucher} from "../src/types/Orders.sol";
import {Fixture} from "./Fixture.sol";
import {Vm} from "forge-std/Vm.sol";

/// @dev Packs by abi.encodePacked what the contract unpacks by shifts, and holds two calls to the same effects.
abstract contract Packing is Fixture {
    function _packMatch(SignedMatch memory entry) internal pure returns (bytes memory) {
        return bytes.concat(
            _packHeads(entry.ask, entry.bid),
            _packAskTerms(entry.ask),
            _packBidTerms(entry.bid),
            entry.bid.terms,
            _compact(entry.askSignature),
            _compact(entry.bidSignature)
        );
    }

    function _packHeads(Ask memory ask, Bid memory bid) private pure returns (bytes memory) {
        return
            abi.encodePacked(ask.provider, ask.index, ask.minPricePerHour, bid.buyer, bid.nonce, bid.maxPricePerHour);
    }

    function _packAskTerms(Ask memory ask) private pure returns (bytes memory) {
        return abi.encodePacked(ask.seq, ask.minDuration, ask.maxDuration, ask.startBy, ask.maxFeeBps, ask.flags);
    }

    function _packBidTerms(Bid memory bid) private pure returns (bytes memory) {
        uint8 flags = bid.flags | (bid.provider == address(0) ? 0 : 0x80);
        return abi.encodePacked(bid.duration, bid.startBy, bid.openFrom, bid.maxFeeBps, bid.auditBps, flags);
    }

    function _packMatches(SignedMatch[] memory entries) internal pure returns (bytes memory data) {
        data = new bytes(256 * entries.length);
        for (uint256 i; i < entries.length; ++i) {
            bytes memory packed = _packMatch(entries[i]);
            assembly ("memory-safe") {
                mcopy(add(add(data, 0x20), mul(i, 256)), add(packed, 0x20), 256)
            }
        }
    }

    function _packStart(Accept memory accepted, bytes memory signature) internal pure returns (bytes memory) {
        return bytes.concat(abi.encodePacked(accepted.index, accepted.seq, accepted.startedAt), _compact(signature));
    }

    /// @param providerSignature Empty: the entry carries none.
    function _packClosing(Voucher memory voucher, bytes memory buyerSignature, bytes memory providerSignature)
        internal
        pure
        returns (bytes memory packed)
    {
        packed = abi.encodePacked(voucher.provider, voucher.index, voucher.seq, voucher.amount);
        packed = bytes.concat(packed, _compact(buyerSignature));
        if (providerSignature.length != 0) packed = bytes.concat(packed, _compact(providerSignature));
    }

    /// @dev EIP-2098: the parity of v in the highest bit of s.
    function _compact(bytes memory signature) internal pure returns (bytes memory) {
        require(signature.length == 65, "a 65-byte signature");
        bytes32 r;
        bytes32 s;
        assembly ("memory-safe") {
            r := mload(add(signature, 0x20))
            s := mload(add(signature, 0x40))
        }
        uint256 parity = uint8(signature[64]) - 27;
        return abi.encodePacked(r, s | bytes32(parity << 255));
    }

    // ---------------------------------------------------------------------------------------------- twins

    /// @dev Both calls, from the same state and sender, leave the same storage and the same events; returns the number
    /// of events.
    function _assertTwins(address sender, bytes memory one, bytes memory other) internal returns (uint256) {
        uint256 snapshot = vm.snapshotState();
        (bytes32 writesOne, Vm.Log[] memory logsOne) = _effects(sender, one);
        vm.revertToState(snapshot);
        (bytes32 writesOther, Vm.Log[] memory logsOther) = _effects(sender, other);
        assertEq(keccak256(abi.encode(logsOne)), keccak256(abi.encode(logsOther)), "events differ");
        assertEq(writesOne, writesOther, "storage differs");
        return logsOne.length;
    }

    /// @return writes A hash over every slot that changed, what it held and what it holds; in no order.
    function _effects(address sender, bytes memory call) private returns (bytes32 writes, Vm.Log[] memory logs) {
        vm.recordLogs();
        vm.startStateDiffRecording();
        vm.prank(sender);
        (bool ok,) = address(book).call(call);
        assertTrue(ok, "the call reverted");
        Vm.AccountAccess[] memory seen = vm.stopAndReturnStateDiff();
        logs = vm.getRecordedLogs();
        for (uint256 i; i < seen.length; ++i) {
            for (uint256 k; k < seen[i].storageAccesses.length; ++k) {
                Vm.StorageAccess memory access = seen[i].storageAccesses[k];
                if (!access.isWrite || access.reverted || access.previousValue == access.newValue) continue;
                // What a slot held in between cancels out.
                writes ^= keccak256(abi.encode(access.account, access.slot, access.previousValue));
                writes ^= keccak256(abi.encode(access.account, access.slot, access.newValue));
            }
        }
    }
}
