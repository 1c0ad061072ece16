// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {AuditHandler} from "./handlers/AuditHandler.sol";
import {Test} from "forge-std/Test.sol";

/// @dev See README.md for the table.
contract VerificationInvariants is Test {
    AuditHandler private world;

    function setUp() external {
        world = new AuditHandler();
        bytes4[] memory actions = new bytes4[](14);
        actions[0] = world.open.selector;
        actions[1] = world.settle.selector;
        actions[2] = world.close.selector;
        actions[3] = world.wait_.selector;
        actions[4] = world.commit.selector;
        actions[5] = world.returnHeld.selector;
        actions[6] = world.draw.selector;
        actions[7] = world.accuse.selector;
        actions[8] = world.judge.selector;
        actions[9] = world.finalize.selector;
        actions[10] = world.giveUp.selector;
        actions[11] = world.convictLate.selector;
        actions[12] = world.challenge.selector;
        actions[13] = world.answer.selector;
        targetContract(address(world));
        targetSelector(FuzzSelector({addr: address(world), selectors: actions}));
    }

    function invariant_I1_solvencyWithHeldPayAndBatches() external view {
        world.assertSolvent();
    }

    function invariant_I6_locksAreThoseOfOpenBatches() external view {
        world.assertLocks();
    }

    function afterInvariant() external {
        world.drain();
    }
}
