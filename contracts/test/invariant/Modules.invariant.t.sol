// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {GroupHandler} from "./handlers/GroupHandler.sol";
import {Test} from "forge-std/Test.sol";

/// @dev See README.md for the table.
contract ModulesInvariants is Test {
    GroupHandler private world;

    function setUp() external {
        world = new GroupHandler();
        bytes4[] memory actions = new bytes4[](14);
        actions[0] = world.openFuture.selector;
        actions[1] = world.fund.selector;
        actions[2] = world.nominate.selector;
        actions[3] = world.assign.selector;
        actions[4] = world.finish.selector;
        actions[5] = world.live.selector;
        actions[6] = world.settleUnit.selector;
        actions[7] = world.wait_.selector;
        actions[8] = world.pauseMachine.selector;
        actions[9] = world.pledge.selector;
        actions[10] = world.closeCampaign.selector;
        actions[11] = world.refundPledge.selector;
        actions[12] = world.clear.selector;
        actions[13] = world.openRest.selector;
        targetContract(address(world));
        targetSelector(FuzzSelector({addr: address(world), selectors: actions}));
    }

    function invariant_I1_solvencyWithModules() external view {
        world.assertSolvent();
    }

    function invariant_I11_marginsInAreOutOrHeld() external view {
        world.assertMarginsConserved();
    }

    function invariant_I9_ordersOfFuturesOpenNoMoreThanTheySay() external view {
        world.assertNoOrderIsOverfilled();
    }

    function invariant_I12_pledgesAreLeasedRefundedOrHeld() external view {
        world.assertPledgesConserved();
    }

    function afterInvariant() external {
        world.drain();
    }
}

/// @dev What the invariants are worth: random calls reach every end that a contract, a unit and a pledge can have.
contract ModulesHandlersReach is Test {
    function test_handlers_whenActingAtRandom_thenReachEveryEnd() external {
        GroupHandler world = new GroupHandler();
        for (uint256 i; i < 1200; ++i) {
            uint256 seed = uint256(keccak256(abi.encode(i)));
            uint256 action = (seed >> 200) % 12;
            if (action == 0) world.openFuture(seed);
            else if (action == 1) world.assign(seed);
            else if (action == 2) world.finish(seed);
            else if (action < 6) world.live(seed);
            else if (action == 6) world.pauseMachine(seed);
            else if (action == 7) world.closeCampaign(seed);
            else if (action == 8) world.refundPledge(seed);
            else if (action == 9) world.clear(seed);
            else if (action == 10) world.openRest(seed);
            else world.wait_(seed);
        }
        string[18] memory names = [
            "openFuture",
            "openRest",
            "closeOrder",
            "fund",
            "nominate",
            "assign",
            "settleDefault",
            "lapse",
            "deliver",
            "begin",
            "no-show",
            "stop",
            "release",
            "close",
            "expire",
            "settleUnit",
            "closeCampaign",
            "refundPledge"
        ];
        for (uint256 i; i < names.length; ++i) {
            assertGt(world.calls(names[i]), 0, names[i]);
        }
        world.assertSolvent();
        world.drain();
    }
}
