// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IGroupBuy} from "../../../src/interfaces/IGroupBuy.sol";
import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {Pledge, PledgedAsk} from "../../../src/types/GroupBuys.sol";
import {SkipCode, Status} from "../../../src/types/Lifecycle.sol";
import {Lease} from "../../../src/types/Rows.sol";
import {GroupFixture} from "./GroupFixture.sol";

contract LockPledge is GroupFixture {
    function _refused(bytes memory error_) private {
        _refusedPledge(_pledge(buyer, 1), error_);
    }

    function _refusedPledge(Pledge memory pledge, bytes memory error_) private {
        bytes memory signature = _signPledge(pledge.buyer, pledge);
        vm.expectRevert(error_);
        module.lockPledge(campaign, pledge, signature);
    }

    function _bad(bytes32 field) private pure returns (bytes memory) {
        return abi.encodeWithSelector(IGroupBuy.GroupBuy_BadCampaign.selector, field);
    }

    function test_lockPledge_whenOpeningsArePaused_thenReverts() external {
        vm.prank(guardian);
        book.pauseOpenings(1 hours);
        _refused(abi.encodeWithSelector(IGroupBuy.GroupBuy_OpeningsPaused.selector, block.timestamp + 1 hours));
        skip(1 hours);
        _lock(buyer, 1);
    }

    function test_lockPledge_whenForAnotherCampaign_thenReverts() external {
        Pledge memory pledge = _pledge(buyer, 1);
        pledge.campaignId = keccak256("another");
        _refusedPledge(pledge, abi.encodeWithSelector(IGroupBuy.GroupBuy_WrongCampaign.selector, pledge.campaignId));
    }

    function test_lockPledge_whenTheCampaignCannotClose_thenReverts() external {
        campaign.product = product + 1;
        _refused(_bad("product"));
        (campaign.product, campaign.pricePerHour) = (product, 0);
        _refused(_bad("price"));
        campaign.pricePerHour = uint64(uint256(2 ** 48) * 3600 / GPUS / DURATION + 1);
        _refused(_bad("price"));
        (campaign.pricePerHour, campaign.goal) = (PRICE, 0);
        _refused(_bad("goal"));
        campaign.goal = 101;
        _refused(_bad("goal"));
        (campaign.goal, campaign.windowStart) = (GOAL, campaign.deadline + 1);
        _refused(_bad("windowStart"));
        (campaign.windowStart, campaign.marketId) = (campaign.deadline, marketId + 1);
        _refused(_bad("marketId"));
        (campaign.marketId, campaign.deadline) = (0, uint32(block.timestamp + 14 days + 1));
        _refused(_bad("deadline"));
        campaign.deadline -= 1;
        _lock(buyer, 1);
    }

    function test_lockPledge_whenTheDeadlineHasPassed_thenReverts() external {
        vm.warp(campaign.deadline + 1);
        _refused(abi.encodeWithSelector(IGroupBuy.GroupBuy_TooLate.selector, campaign.deadline));
    }

    function test_lockPledge_whenTheCampaignClosed_thenReverts() external {
        _full();
        _closeWith(_asks(3));
        _refused(abi.encodeWithSelector(IGroupBuy.GroupBuy_AlreadyClosed.selector, id));
    }

    function test_lockPledge_whenTheSlicesCostMoreThanAllowed_thenReverts() external {
        Pledge memory pledge = _pledge(buyer, 2);
        pledge.maxAmount -= 1;
        bytes memory error_ =
            abi.encodeWithSelector(IGroupBuy.GroupBuy_AmountAboveLimit.selector, 2 * CAP, 2 * CAP - 1);
        _refusedPledge(pledge, error_);
    }

    function test_lockPledge_whenFull_thenReverts() external {
        bytes memory error_ = abi.encodeWithSelector(IGroupBuy.GroupBuy_Full.selector, 100);
        Pledge memory pledge = _pledge(buyer, 101);
        _refusedPledge(pledge, error_);
        pledge = _pledge(buyer, 0);
        _refusedPledge(pledge, error_);
        for (uint256 i; i < 99; ++i) {
            _lock(buyer, 1);
        }
        pledge = _pledge(buyer, 2);
        _refusedPledge(pledge, error_);
        _lock(other, 1);
        assertEq(module.stateOf(id).slices, 100);
        assertEq(module.stateOf(id).pledges, 100);
        _refused(error_);
    }

    function test_lockPledge_whenAnotherSigned_thenReverts() external {
        Pledge memory pledge = _pledge(buyer, 1);
        bytes memory signature = _signPledge(sessionKey, pledge);
        vm.expectRevert(abi.encodeWithSelector(IGroupBuy.GroupBuy_BadSignature.selector, buyer));
        module.lockPledge(campaign, pledge, signature);
        vm.expectRevert(abi.encodeWithSelector(IGroupBuy.GroupBuy_BadSignature.selector, buyer));
        module.lockPledge(campaign, pledge, "");
    }

    function test_lockPledge_whenTheCashIsTooLowOrTheNonceUsed_thenReverts() external {
        campaign.pricePerHour = PRICE * 1000;
        Pledge memory pledge = _pledge(buyer, 1);
        pledge.maxAmount = uint48(1000 * CAP);
        _refusedPledge(pledge, abi.encodeWithSelector(ILeaseBookLog.LeaseBook_CashTooLow.selector, CASH, 1000 * CAP));
        campaign.pricePerHour = PRICE;
        pledge = _pledge(buyer, 1);
        vm.prank(buyer);
        book.cancelOne(pledge.nonce);
        _refusedPledge(pledge, abi.encodeWithSelector(ILeaseBookLog.LeaseBook_NonceUnusable.selector, pledge.nonce));
    }

    function test_lockPledge_whenAllIsWell_thenThePriceOfAllSlicesIsLocked() external {
        vm.expectEmit(address(module));
        emit IGroupBuy.PledgeLocked(id, buyer, 0, 2, uint64(2 * CAP));
        assertEq(_lock(buyer, 2), 0);
        assertEq(_lock(other, 1), 1);
        assertEq(_cash(buyer), CASH - 2 * CAP);
        assertEq(module.stateOf(id).slices, 3);
        assertEq(module.stateOf(id).pledges, 2);
        assertEq(module.pledgeOf(id, 0).buyer, buyer);
        assertEq(module.pledgeOf(id, 0).slices, 2);
        assertEq(module.pledgeOf(id, 0).amount, 2 * CAP);
        assertEq(book.moduleCash(address(module)), 3 * CAP);
        _assertSolventWithModule();
    }

    function test_lockPledge_whenTheBuyerCalls_thenNeedsNoSignature() external {
        Pledge memory pledge = _pledge(buyer, 1);
        vm.prank(buyer);
        module.lockPledge(campaign, pledge, "");
        assertEq(module.pledgeOf(id, 0).buyer, buyer);
    }

    function test_construction_whenTheBookNamesAnother_thenReverts() external {
        bytes memory code = abi.encodePacked(vm.getCode("GroupBuy.sol:GroupBuy"), abi.encode(book));
        (address made, bytes memory answer) = _tryCreate(code);
        assertEq(made, address(0));
        assertEq(answer, abi.encodeWithSelector(IGroupBuy.GroupBuy_BadSetting.selector, bytes32("leaseBook")));
        assertEq(module.leaseBook(), address(book));
    }
}

contract CloseCampaign is GroupFixture {
    function _refused(PledgedAsk[] memory asks, bytes memory error_) private {
        vm.expectRevert(error_);
        module.closeCampaign(campaign, new address[](0), asks);
    }

    function test_closeCampaign_whenOutsideItsTime_thenReverts() external {
        _full();
        PledgedAsk[] memory asks = _asks(3);
        vm.warp(campaign.windowStart - 1);
        _refused(asks, abi.encodeWithSelector(IGroupBuy.GroupBuy_TooEarly.selector, campaign.windowStart));
        vm.warp(campaign.deadline + 1);
        _refused(asks, abi.encodeWithSelector(IGroupBuy.GroupBuy_TooLate.selector, campaign.deadline));
        vm.warp(campaign.deadline);
        _closeWith(asks);
        _refused(asks, abi.encodeWithSelector(IGroupBuy.GroupBuy_AlreadyClosed.selector, id));
    }

    function test_closeCampaign_whenTheAsksAreTooFewOrTooMany_thenReverts() external {
        _full();
        PledgedAsk[] memory asks = _asks(2);
        _refused(asks, abi.encodeWithSelector(IGroupBuy.GroupBuy_WrongCount.selector, 2, GOAL, 3));
        asks = _asks(4);
        _refused(asks, abi.encodeWithSelector(IGroupBuy.GroupBuy_WrongCount.selector, 4, GOAL, 3));
    }

    function test_closeCampaign_whenTheGoalWasNotReached_thenReverts() external {
        _lock(buyer, 2);
        vm.warp(campaign.windowStart);
        _refused(_asks(2), abi.encodeWithSelector(IGroupBuy.GroupBuy_WrongCount.selector, 2, GOAL, 2));
    }

    /// @dev A campaign that nobody can pledge to must not be closed with nothing either.
    function test_closeCampaign_whenThereIsNone_thenReverts() external {
        campaign.goal = 0;
        vm.warp(campaign.windowStart);
        _refused(new PledgedAsk[](0), abi.encodeWithSelector(IGroupBuy.GroupBuy_WrongCount.selector, 0, 0, 0));
    }

    function test_closeCampaign_whenTheProvidersAreOthers_thenReverts() external {
        address[] memory listed = new address[](2);
        (listed[0], listed[1]) = (other, provider);
        campaign.providersHash = keccak256(abi.encode(listed));
        _full();
        PledgedAsk[] memory asks = _asks(3);
        _refused(asks, abi.encodeWithSelector(IGroupBuy.GroupBuy_WrongProviders.selector));
        bytes memory error_ =
            abi.encodeWithSelector(IGroupBuy.GroupBuy_AskRefused.selector, 0, SkipCode.WRONG_PROVIDER);
        vm.expectRevert(error_);
        module.closeCampaign(campaign, listed, asks);
        for (uint256 i; i < 3; ++i) {
            asks[i].place = 1;
        }
        asks[0].place = 2;
        vm.expectRevert(error_);
        module.closeCampaign(campaign, listed, asks);
        asks[0].place = 1;
        module.closeCampaign(campaign, listed, asks);
        assertEq(_status(), Status.Funded);
    }

    function test_closeCampaign_whenOneAskOpensNoLease_thenNoneDoes() external {
        _full();
        PledgedAsk[] memory asks = _asks(3);
        vm.prank(provider);
        book.pause(INDEX + 2);
        bytes memory error_ =
            abi.encodeWithSelector(IGroupBuy.GroupBuy_AskRefused.selector, 2, SkipCode.MACHINE_NOT_FREE);
        _refused(asks, error_);
        assertEq(_status(), Status.Free);
        asks[2] = _pledgedAsk(INDEX + 3);
        _closeWith(asks);
    }

    function test_closeCampaign_whenAllIsWell_thenOpensALeaseASlice() external {
        _full();
        vm.prank(guardian);
        book.pauseOpenings(1 days); // what was pledged before goes on
        vm.expectEmit(address(module));
        emit IGroupBuy.CampaignClosed(id, 3);
        _closeWith(_asks(3));
        address[3] memory buyers = [buyer, buyer, other];
        for (uint32 i; i < 3; ++i) {
            Lease memory lease = book.leaseOf(provider, INDEX + i, 1);
            assertEq(lease.status, Status.Funded);
            assertEq(lease.buyer, buyers[i]);
            assertEq(lease.cap, CAP);
            assertEq(lease.duration, DURATION);
            assertEq(lease.marketId, marketId);
            assertEq(lease.flags, 0);
        }
        assertTrue(module.stateOf(id).closed);
        assertEq(module.pledgeOf(id, 0).amount, 0);
        assertEq(book.moduleCash(address(module)), 0);
        _assertSolventWithModule();
        vm.warp(campaign.deadline + 1);
        vm.expectRevert(abi.encodeWithSelector(IGroupBuy.GroupBuy_NoPledge.selector, 0));
        module.refundPledge(campaign, 0);
    }

    function test_closeCampaign_whenMoreIsPledged_thenTheRestReturnsAtOnce() external {
        _lock(buyer, 2);
        _lock(other, 3);
        _lock(buyer, 1);
        vm.warp(campaign.windowStart);
        vm.expectEmit(address(module));
        emit IGroupBuy.PledgeRefunded(id, other, 1, uint64(CAP));
        _closeWith(_asks(4));
        assertEq(book.leaseOf(provider, INDEX + 3, 1).buyer, other);
        assertEq(_cash(buyer), CASH - 2 * CAP);
        assertEq(_cash(other), CASH - 2 * CAP);
        assertEq(book.moduleCash(address(module)), 0);
        _assertSolventWithModule();
    }
}

contract RefundPledge is GroupFixture {
    function test_refundPledge_whenTheDeadlineHasNotPassed_thenReverts() external {
        _full();
        vm.warp(campaign.deadline);
        vm.expectRevert(abi.encodeWithSelector(IGroupBuy.GroupBuy_TooEarly.selector, uint256(campaign.deadline) + 1));
        module.refundPledge(campaign, 0);
    }

    function test_refundPledge_whenThereIsNoSuchPledge_thenReverts() external {
        _full();
        vm.warp(campaign.deadline + 1);
        vm.expectRevert(abi.encodeWithSelector(IGroupBuy.GroupBuy_NoPledge.selector, 2));
        module.refundPledge(campaign, 2);
        module.refundPledge(campaign, 1);
        vm.expectRevert(abi.encodeWithSelector(IGroupBuy.GroupBuy_NoPledge.selector, 1));
        module.refundPledge(campaign, 1);
    }

    function test_refundPledge_whenTheCampaignFailed_thenReturnsThePledge() external {
        _full();
        vm.warp(campaign.deadline + 1);
        vm.startPrank(stranger);
        module.refundPledge(campaign, 1);
        vm.expectEmit(address(module));
        emit IGroupBuy.PledgeRefunded(id, buyer, 0, uint64(2 * CAP));
        module.refundPledge(campaign, 0);
        vm.stopPrank();
        assertEq(_cash(buyer), CASH);
        assertEq(_cash(other), CASH);
        assertEq(book.moduleCash(address(module)), 0);
        _assertSolventWithModule();
    }
}
