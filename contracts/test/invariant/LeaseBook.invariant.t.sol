// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBook} from "../../src/interfaces/ILeaseBook.sol";
import {LeaseWord} from "../../src/types/LeaseWord.sol";
import {Status} from "../../src/types/Lifecycle.sol";
import {MachineKey, machineKeyOf} from "../../src/types/MachineKey.sol";
import {Lease, Machine} from "../../src/types/Rows.sol";
import {LeaseHandler} from "./handlers/LeaseHandler.sol";
import {LeaseStore} from "./stores/LeaseStore.sol";
import {Test} from "forge-std/Test.sol";

/// @dev See README.md for the table.
contract LeaseBookInvariants is Test {
    /// @dev Slot of Ledger's `_leases`, see snapshots/storage_layout.json.
    uint256 private constant LEASES_SLOT = 7;

    LeaseHandler private world;
    ILeaseBook private book;

    function setUp() external {
        world = new LeaseHandler();
        book = world.theBook();
        bytes4[] memory actions = new bytes4[](20);
        actions[0] = world.deposit.selector;
        actions[1] = world.withdraw.selector;
        actions[2] = world.registerRow.selector;
        actions[3] = world.cancelBelow.selector;
        actions[4] = world.wait_.selector;
        actions[5] = world.addBond.selector;
        actions[6] = world.pauseOrUnpause.selector;
        actions[7] = world.retire.selector;
        actions[8] = world.finishAndReturn.selector;
        actions[9] = world.cancelAsks.selector;
        actions[10] = world.postReady.selector;
        actions[11] = world.refundUnstarted.selector;
        actions[12] = world.stop.selector;
        actions[13] = world.giveNotice.selector;
        actions[14] = world.release.selector;
        actions[15] = world.expire.selector;
        actions[16] = world.open.selector;
        actions[17] = world.begin.selector;
        actions[18] = world.settle.selector;
        actions[19] = world.close.selector;
        targetContract(address(world));
        targetSelector(FuzzSelector({addr: address(world), selectors: actions}));
    }

    function invariant_I1_solvency() external view {
        uint256 owed = world.idleBond();
        address[] memory all = world.accounts();
        for (uint256 i; i < all.length; ++i) {
            owed += book.accountOf(all[i]).cash;
        }
        for (uint256 i; i < world.slotCount(); ++i) {
            (, Machine memory machine, Lease memory lease) = _at(i);
            owed += uint256(machine.bond) * 1e6 + lease.cap - lease.paid;
        }
        assertEq(world.vaultBalance(), owed);
    }

    function invariant_I2_paidWithinCeilingWithinCap() external view {
        for (uint256 i; i < world.slotCount(); ++i) {
            (,, Lease memory lease) = _at(i);
            assertLe(lease.paid, lease.ceiling);
            assertLe(lease.ceiling, lease.cap);
            if (lease.status == Status.Funded) assertEq(lease.paid, 0);
            if (lease.status != Status.None) assertLe(lease.cap, world.toldOf(i).cap);
        }
    }

    function invariant_I3_paidWithinSigned() external view {
        for (uint256 i; i < world.slotCount(); ++i) {
            (,, Lease memory lease) = _at(i);
            assertLe(lease.paid, world.toldOf(i).signed);
        }
    }

    function invariant_I5_freeMachinesAreEmpty() external view {
        for (uint256 i; i < world.slotCount(); ++i) {
            (LeaseStore.Slot memory slot, Machine memory machine,) = _at(i);
            assertEq(machine.seq, slot.seq, "lease number");
            LeaseWord word = _rawWord(slot);
            assertEq(uint8(word.status()), uint8(machine.status), "not the machine's word");
            assertEq(word.bond(), machine.bond, "not the machine's word");
            if (word.status() == Status.Funded || word.isRunning()) continue;
            assertEq(word.cap() + word.paid() + word.marketId() + word.buyerId(), 0);
            assertEq(word.start() + word.duration() + word.flags(), 0);
        }
    }

    function invariant_I8_bondFallsByPenaltiesOnly() external view {
        for (uint256 i; i < world.slotCount(); ++i) {
            (LeaseStore.Slot memory slot, Machine memory machine,) = _at(i);
            assertEq(machine.bond, slot.bond);
        }
    }

    function invariant_I13_feesWithinRate() external view {
        uint256 fees = book.accountOf(world.theMarket()).cash + world.marketOut() - world.marketIn();
        assertLe(fees * 10_000, world.paidThroughMarket() * world.feeRate());
        for (uint256 i; i < world.slotCount(); ++i) {
            (,, Lease memory lease) = _at(i);
            bool running = lease.status == Status.Active || lease.status == Status.Stopped;
            if (running) assertTrue(world.toldOf(i).accepted, "runs without an Accept");
        }
    }

    function afterInvariant() external {
        world.drain();
    }

    function _at(uint256 i)
        private
        view
        returns (LeaseStore.Slot memory slot, Machine memory machine, Lease memory lease)
    {
        slot = world.slotAt(i);
        machine = book.machineOf(slot.provider, slot.index);
        lease = book.leaseOf(slot.provider, slot.index, slot.seq);
    }

    function _rawWord(LeaseStore.Slot memory slot) private view returns (LeaseWord) {
        MachineKey key = machineKeyOf(slot.provider, slot.index);
        bytes32 place = keccak256(abi.encode(key, LEASES_SLOT));
        return LeaseWord.wrap(uint256(vm.load(address(book), place)));
    }
}
