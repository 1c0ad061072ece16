// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseTrading} from "../interfaces/ILeaseTrading.sol";
import {OrderHash} from "../libraries/OrderHash.sol";
import {PackedBatch} from "../libraries/PackedBatch.sol";
import {SigCheck} from "../libraries/SigCheck.sol";
import {READY} from "../types/Flags.sol";
import {LeaseWord} from "../types/LeaseWord.sol";
import {Role, SkipCode, Status} from "../types/Lifecycle.sol";
import {MachineKey, machineKeyOf} from "../types/MachineKey.sol";
import {Accept, Ready} from "../types/Orders.sol";
import {Ledger} from "./Ledger.sol";

/// @title Starts: from a funded lease to one that runs
abstract contract Starts is ILeaseTrading, Ledger {
    /// @inheritdoc ILeaseTrading
    function postReady(Ready calldata ready, bytes calldata signature) external {
        MachineKey key = machineKeyOf(ready.provider, ready.index);
        LeaseWord word = _leases[key];
        _requireStatus(word, Status.Funded);
        if (word.seq() != ready.seq) revert LeaseBook_WrongLease(word.seq());
        if (block.timestamp > word.start()) revert LeaseBook_TooLate(word.start());
        if (word.has(READY)) revert LeaseBook_WrongStatus(Status.Funded);
        _requireReadySigned(ready, signature);
        _leases[key] = word.withFlag(READY);
        emit LeaseReady({machineKey: key, seq: ready.seq, runtimeHash: ready.runtimeHash});
    }

    /// @inheritdoc ILeaseTrading
    function begin(
        Ready calldata ready,
        bytes calldata readySignature,
        Accept calldata accepted,
        bytes calldata acceptSignature
    ) external {
        bool same = accepted.provider == ready.provider && accepted.index == ready.index && accepted.seq == ready.seq;
        if (!same) revert LeaseBook_WrongLease(ready.seq);
        address signer = SigCheck.recover(_digest(OrderHash.hash(accepted)), acceptSignature);
        MachineKey key = machineKeyOf(ready.provider, ready.index);
        (LeaseWord word, SkipCode code) = _start(key, ready.seq, accepted.startedAt, signer);
        if (code == SkipCode.WRONG_STATE) {
            _requireStatus(word, Status.Funded);
            revert LeaseBook_WrongLease(word.seq());
        }
        if (code == SkipCode.EXPIRED) revert LeaseBook_TooLate(word.start());
        if (code == SkipCode.START_OUT_OF_RANGE) {
            revert LeaseBook_StartOutOfRange({
                startedAt: accepted.startedAt, earliest: word.start() - START_WINDOW, latest: block.timestamp
            });
        }
        if (code != SkipCode.NONE) revert LeaseBook_BadSignature(_addressOf[word.buyerId()]);
        _requireReadySigned(ready, readySignature);
    }

    /// @inheritdoc ILeaseTrading
    function beginPacked(address provider, bytes calldata data) external {
        _requireEntries(data.length, PackedBatch.START_BYTES);
        if (!_speaksFor(provider, msg.sender, Role.Node, block.timestamp)) revert LeaseBook_NotOwner(msg.sender);
        bytes32 domainSeparator = _domainSeparatorV4();
        uint256 entry = PackedBatch.first(data);
        uint256 end = entry + data.length;
        for (uint256 i; entry < end;) {
            SkipCode code = _startEntry(domainSeparator, provider, entry);
            if (code != SkipCode.NONE) emit EntrySkipped({index: i, code: code});
            unchecked {
                ++i;
                entry += PackedBatch.START_BYTES;
            }
        }
    }

    function _startEntry(bytes32 domainSeparator, address provider, uint256 entry) private returns (SkipCode code) {
        unchecked {
            uint256 head = PackedBatch.wordAt(entry);
            bytes32 structHash = PackedBatch.acceptHash(entry, provider);
            uint256 place = entry + PackedBatch.ACCEPT_SIGNATURE;
            address signer = PackedBatch.signerOf(domainSeparator, structHash, place);
            MachineKey key = machineKeyOf(provider, uint32(head >> 224));
            (, code) = _start(key, uint24(head >> 200), uint32(head >> 168), signer);
        }
    }

    /// @dev Starts the lease if the buyer accepted; writes nothing unless it returns NONE.
    /// @param signer Of the Accept; zero: nobody.
    /// @return word The lease as it was.
    function _start(MachineKey key, uint24 seq, uint32 startedAt, address signer)
        private
        returns (LeaseWord word, SkipCode)
    {
        word = _leases[key];
        if (word.status() != Status.Funded || word.seq() != seq) return (word, SkipCode.WRONG_STATE);
        uint256 deadline = word.start();
        if (block.timestamp > deadline) return (word, SkipCode.EXPIRED);
        if (startedAt < deadline - START_WINDOW || startedAt > block.timestamp) {
            return (word, SkipCode.START_OUT_OF_RANGE);
        }
        // By address, not by account number: one slot fewer for a Session key. ERC-1271 is left out on purpose, see
        // {_accountBehind}.
        if (signer == address(0) || !_speaksFor(_addressOf[word.buyerId()], signer, Role.Session, startedAt)) {
            return (word, SkipCode.BAD_ACCEPT_SIGNATURE);
        }
        _leases[key] = word.withStart(startedAt).withStatus(Status.Active);
        emit LeaseStarted({machineKey: key, seq: seq, startedAt: startedAt});
        return (word, SkipCode.NONE);
    }

    function _requireReadySigned(Ready calldata ready, bytes calldata signature) private view {
        address signer = SigCheck.recover(_digest(OrderHash.hash(ready)), signature);
        if (signer == address(0) || !_speaksFor(ready.provider, signer, Role.Node, block.timestamp)) {
            revert LeaseBook_BadSignature(ready.provider);
        }
    }
}
