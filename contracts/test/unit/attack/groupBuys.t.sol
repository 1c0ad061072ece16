// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IGroupBuy} from "../../../src/interfaces/IGroupBuy.sol";
import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {Campaign, Pledge, PledgedAsk} from "../../../src/types/GroupBuys.sol";
import {SkipCode, Status} from "../../../src/types/Lifecycle.sol";
import {SignedMatch} from "../../../src/types/Orders.sol";
import {GroupFixture} from "../groupBuy/GroupFixture.sol";

/// @dev Attacks on group buys: on what buyers agreed to, and on the money that waits.
contract AttackOnGroupBuys is GroupFixture {
    /// @dev Another product, price, duration, goal, time, market or list of providers is another campaign, without
    /// a pledge in it.
    function test_attack_organiserRedirects() external {
        _full();
        Campaign[9] memory changed;
        for (uint256 i; i < 9; ++i) {
            changed[i] = campaign;
        }
        (changed[0].product, changed[1].pricePerHour, changed[2].duration) = (product + 1, PRICE + 1, DURATION * 2);
        (changed[3].goal, changed[4].windowStart, changed[5].deadline) = (1, 0, campaign.deadline + 1);
        (changed[6].marketId, changed[7].organiser) = (0, buyer);
        changed[8].providersHash = keccak256(abi.encode(new address[](0)));
        for (uint256 i; i < 9; ++i) {
            PledgedAsk[] memory asks = _asks(3);
            vm.expectRevert(abi.encodeWithSelector(IGroupBuy.GroupBuy_WrongCount.selector, 3, changed[i].goal, 0));
            vm.prank(stranger); // the organiser
            module.closeCampaign(changed[i], new address[](0), asks);
        }
        assertEq(book.moduleCash(address(module)), 3 * CAP);
    }

    /// @dev A pledge is firm money: no call of its buyer gets it out before the deadline.
    function test_attack_pledgerWithdraws() external {
        Pledge memory pledge = _pledge(buyer, 2);
        vm.prank(buyer);
        module.lockPledge(campaign, pledge, "");
        _lock(other, 1);
        uint64 all = uint64(CASH);
        vm.startPrank(buyer);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_CashTooLow.selector, CASH - 2 * CAP, CASH));
        book.withdraw(all);
        vm.expectRevert(); // used already: there is nothing to cancel
        book.cancelOne(pledge.nonce);
        book.cancelBelow(pledge.nonce + 1);
        vm.expectRevert(abi.encodeWithSelector(IGroupBuy.GroupBuy_TooEarly.selector, uint256(campaign.deadline) + 1));
        module.refundPledge(campaign, 0);
        vm.stopPrank();
        vm.warp(campaign.windowStart);
        _closeWith(_asks(3));
        assertEq(book.leaseOf(provider, INDEX, 1).buyer, buyer);
    }

    /// @dev Firm money only: what a pledge names must be there when it is locked.
    function test_attack_pledgeWithoutTheMoney() external {
        uint64 most = uint64(CASH - CAP + 1);
        vm.prank(buyer);
        book.withdraw(most);
        Pledge memory pledge = _pledge(buyer, 1);
        bytes memory signature = _signPledge(buyer, pledge);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_CashTooLow.selector, CAP - 1, CAP));
        module.lockPledge(campaign, pledge, signature);
    }

    /// @dev Somebody rich pledges for more than providers have: those before it are served all the same.
    function test_attack_latePledgeKeepsOthersFromBeingServed() external {
        _full();
        _lock(other, 97);
        _closeWith(_asks(3));
        assertEq(book.leaseOf(provider, INDEX + 2, 1).buyer, other);
        assertEq(_cash(other), CASH - CAP);
        assertEq(module.stateOf(id).closed, true);
    }

    /// @dev Whoever closes chooses among asks within the campaign, and gets nothing for it.
    function test_attack_closerSlipsInAWorseAsk() external {
        _full();
        PledgedAsk[] memory asks = _asks(3);
        asks[1].ask.minPricePerHour = PRICE + 1;
        asks[1].signature = _sign(nodeKey, _hash(asks[1].ask));
        vm.expectRevert(
            abi.encodeWithSelector(IGroupBuy.GroupBuy_AskRefused.selector, 1, SkipCode.PRICE_OUTSIDE_LIMITS)
        );
        module.closeCampaign(campaign, new address[](0), asks);
        asks = _asks(3);
        asks[1].ask.minPricePerHour -= 1; // not what was signed
        vm.expectRevert(abi.encodeWithSelector(IGroupBuy.GroupBuy_AskRefused.selector, 1, SkipCode.BAD_ASK_SIGNATURE));
        module.closeCampaign(campaign, new address[](0), asks);
    }

    /// @dev An ask for GroupBuy is nobody else's to open.
    function test_attack_matcherOpensAnAskOfAGroupBuy() external {
        PledgedAsk memory offered = _pledgedAsk(INDEX);
        SignedMatch memory entry = _paired(offered.ask, _bid());
        _assertSkipped(matcher, entry, SkipCode.WRONG_MATCHER);
    }

    /// @dev One pledge, two campaigns: it names its own, and its nonce goes once.
    function test_attack_pledgeReplayed() external {
        Pledge memory pledge = _pledge(buyer, 1);
        bytes memory signature = _signPledge(buyer, pledge);
        module.lockPledge(campaign, pledge, signature);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NonceUnusable.selector, pledge.nonce));
        module.lockPledge(campaign, pledge, signature);
        vm.chainId(8453);
        vm.expectRevert(abi.encodeWithSelector(IGroupBuy.GroupBuy_WrongCampaign.selector, pledge.campaignId));
        module.lockPledge(campaign, pledge, signature);
    }

    /// @dev The provider that pledges for its own machine rents it to nobody.
    function test_attack_providerPledgesForItself() external {
        _lock(provider, 1);
        _lock(buyer, 2);
        vm.warp(campaign.windowStart);
        PledgedAsk[] memory asks = _asks(3);
        vm.expectRevert(abi.encodeWithSelector(IGroupBuy.GroupBuy_AskRefused.selector, 0, SkipCode.SELF_DEALING));
        module.closeCampaign(campaign, new address[](0), asks);
        assertEq(_status(), Status.Free);
    }
}
