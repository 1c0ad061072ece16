// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Status} from "../../../src/types/Lifecycle.sol";
import {Machine} from "../../../src/types/Rows.sol";
import {AccountHandler} from "./AccountHandler.sol";

/// @dev Machines come, pause and go.
abstract contract MachineHandler is AccountHandler {
    function addBond(uint256 seed, uint24 amount) external {
        (uint256 i, Slot memory slot, Machine memory machine) = _pick(seed, Status.Active, Status.Free);
        amount = uint24(bound(amount, 1, 20));
        if (machine.status == Status.None || _cash(slot.provider) < uint256(amount) * 1e6) return;
        vm.prank(slot.provider);
        book.addBond(slot.index, amount);
        _slots[i].bond += amount;
        ++calls["addBond"];
    }

    function pauseOrUnpause(uint256 seed) external {
        (, Slot memory slot, Machine memory machine) =
            _pick(seed, Status.Paused, seed % 5 == 0 ? Status.Free : Status.Paused);
        vm.startPrank(slot.provider);
        if (machine.status == Status.Free && seed % 5 == 0) book.pause(slot.index);
        else if (machine.status == Status.Paused) book.unpause(slot.index);
        vm.stopPrank();
        ++calls["pause"];
    }

    function retire(uint256 seed) external {
        (, Slot memory slot, Machine memory machine) = _pick(seed, Status.Free, Status.Paused);
        bool idle = machine.status == Status.Free || machine.status == Status.Paused;
        if (!idle || seed % 4 != 0) return; // seldom, or nothing is left to lease
        vm.prank(slot.provider);
        book.retire(slot.index);
        ++calls["retire"];
    }

    function finishAndReturn(uint256 seed) external {
        (uint256 i, Slot memory slot, Machine memory machine) = _pick(seed, Status.Retiring, Status.Retiring);
        if (machine.status != Status.Retiring) return;
        if (block.timestamp < machine.retireAt) vm.warp(machine.retireAt);
        uint256 before = _cash(slot.provider);
        vm.startPrank(slot.provider);
        book.finishRetire(slot.index);
        assertEq(_cash(slot.provider), before + slot.bond * 1e6, "the bond comes back whole");
        _slots[i].bond = 0;
        uint24 bond = uint24(bound(seed >> 8, 1, 40));
        if (_cash(slot.provider) >= uint256(bond) * 1e6) {
            book.addMachine(slot.index, bond, product);
            _slots[i].bond = bond;
        }
        vm.stopPrank();
        ++calls["finishRetire"];
    }

    function cancelAsks(uint256 seed) external {
        (, Slot memory slot, Machine memory machine) = _pick(seed, Status.Free, Status.Active);
        if (machine.status == Status.None) return;
        vm.prank(slot.provider);
        book.cancelAsks(slot.index, uint24(machine.nextSeq + 1 + seed % 3));
        ++calls["cancelAsks"];
    }
}
