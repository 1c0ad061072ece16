// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseOffice} from "../interfaces/ILeaseOffice.sol";
import {HELD_SLOTS, HeldWord} from "../types/HeldWord.sol";
import {LeaseWord} from "../types/LeaseWord.sol";
import {Status} from "../types/Lifecycle.sol";
import {MachineKey, machineKeyOf} from "../types/MachineKey.sol";
import {ProductWord} from "../types/ProductWord.sol";
import {Tables} from "./Tables.sol";

/// @title Machines: the rentable slices, their bonds, and how they come and go
abstract contract Machines is Tables {
    uint256 private constant BOND_MAX = type(uint24).max;

    /// @inheritdoc ILeaseOffice
    function addMachine(uint32 index, uint24 bond, uint32 product) external {
        MachineKey key = machineKeyOf(msg.sender, index);
        LeaseWord word = _leases[key];
        _requireStatus(word, Status.None);
        if (product == 0 || product > _productCount) revert LeaseBook_UnknownProduct(product);
        if (bond == 0) revert LeaseBook_AmountZero();
        _debit(msg.sender, bond * BOND_UNIT);
        _leases[key] = word.idle(Status.Free).withBond(bond);
        _machines[key] = _machines[key].renewed(product);
        emit MachineAdded({machineKey: key, product: product, bond: bond});
    }

    /// @inheritdoc ILeaseOffice
    function addBond(uint32 index, uint24 bond) external {
        MachineKey key = machineKeyOf(msg.sender, index);
        LeaseWord word = _leases[key];
        if (word.status() == Status.None) revert LeaseBook_WrongStatus(Status.None);
        if (bond == 0) revert LeaseBook_AmountZero();
        uint256 total = word.bond() + bond;
        if (total > BOND_MAX) revert LeaseBook_BondTooHigh(total);
        _debit(msg.sender, bond * BOND_UNIT);
        _leases[key] = word.withBond(total);
        emit BondAdded({machineKey: key, added: bond});
    }

    /// @inheritdoc ILeaseOffice
    function pause(uint32 index) external {
        _move(index, Status.Free, Status.Paused);
        emit MachinePaused({machineKey: machineKeyOf(msg.sender, index), paused: true});
    }

    /// @inheritdoc ILeaseOffice
    function unpause(uint32 index) external {
        _move(index, Status.Paused, Status.Free);
        emit MachinePaused({machineKey: machineKeyOf(msg.sender, index), paused: false});
    }

    /// @inheritdoc ILeaseOffice
    function retire(uint32 index) external {
        MachineKey key = machineKeyOf(msg.sender, index);
        Status status = _leases[key].status();
        if (status != Status.Free && status != Status.Paused) revert LeaseBook_WrongStatus(status);
        uint32 finishableAt = uint32(block.timestamp + RETIRE_DELAY);
        _leases[key] = _leases[key].withStatus(Status.Retiring);
        _machines[key] = _machines[key].withRetireAt(finishableAt);
        emit MachineRetiring({machineKey: key, finishableAt: finishableAt});
    }

    /// @inheritdoc ILeaseOffice
    function finishRetire(uint32 index) external {
        MachineKey key = machineKeyOf(msg.sender, index);
        (LeaseWord word, ProductWord machine) = (_leases[key], _machines[key]);
        _requireStatus(word, Status.Retiring);
        if (block.timestamp < machine.retireAt()) revert LeaseBook_TooEarly(machine.retireAt());
        if (machine.locked() != 0) revert LeaseBook_BondLocked(machine.locked());
        for (uint256 i; i < HELD_SLOTS; ++i) {
            HeldWord held = _held[key][i];
            if (!held.isClear()) revert LeaseBook_HeldNotCleared(held.seq());
        }
        _leases[key] = word.idle(Status.None).withBond(0);
        _machines[key] = machine.renewed(0);
        _credit(msg.sender, word.bond() * BOND_UNIT);
        emit MachineRetired({machineKey: key, bond: uint24(word.bond())});
    }

    /// @inheritdoc ILeaseOffice
    function cancelAsks(uint32 index, uint24 nextSeq) external {
        MachineKey key = machineKeyOf(msg.sender, index);
        (LeaseWord word, ProductWord machine) = (_leases[key], _machines[key]);
        if (word.status() == Status.None) revert LeaseBook_WrongStatus(Status.None);
        uint256 next = _nextSeq(word, machine);
        if (nextSeq <= next) revert LeaseBook_StaleSequence({seq: nextSeq, next: next});
        _machines[key] = machine.withAskFloor(nextSeq);
        emit OrdersCancelled({machineKey: key, nextSeq: nextSeq});
    }

    function _move(uint32 index, Status from, Status to) private {
        MachineKey key = machineKeyOf(msg.sender, index);
        LeaseWord word = _leases[key];
        _requireStatus(word, from);
        _leases[key] = word.withStatus(to);
    }
}
