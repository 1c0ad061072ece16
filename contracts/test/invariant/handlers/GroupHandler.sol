// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Campaign, CampaignState, LockedPledge, Pledge, PledgedAsk} from "../../../src/types/GroupBuys.sol";
import {Status} from "../../../src/types/Lifecycle.sol";
import {Accept, Ask, Ready, Voucher} from "../../../src/types/Orders.sol";
import {Lease} from "../../../src/types/Rows.sol";
import {FuturesHandler} from "./FuturesHandler.sol";

/// @dev Group buys beside the futures, over the same machines and accounts; and the end of everything.
contract GroupHandler is FuturesHandler {
    function wait_(uint256 seed) external {
        skip(1 + seed % 20 minutes);
    }

    function pauseMachine(uint256 seed) external {
        (address short, uint32 index) = (shorts[seed % 2], uint32((seed >> 8) % 3));
        Status status = book.machineOf(short, index).status;
        vm.startPrank(short);
        if (status == Status.Free) book.pause(index);
        else if (status == Status.Paused) book.unpause(index);
        vm.stopPrank();
        ++calls["pauseMachine"];
    }

    function pledge(uint256 seed) public {
        bool over = _campaigns.length == 0 || block.timestamp > _newest().campaign.deadline;
        if (over || pool.stateOf(pool.idOf(_newest().campaign)).closed) _beginCampaign(seed);
        Named storage named = _newest();
        bytes32 id = pool.idOf(named.campaign);
        CampaignState memory state = pool.stateOf(id);
        address who = longs[(seed >> 8) % 2];
        uint16 slices = uint16(1 + (seed >> 16) % 2);
        uint256 amount = _capOf(named.campaign.pricePerHour) * slices;
        if (state.closed || state.slices + slices > 100 || _cash(who) < amount) return;
        Pledge memory made = Pledge(who, id, uint48(amount), slices, _nonceOf(who));
        pool.lockPledge(named.campaign, made, _signPledge(made));
        pledgesIn += amount;
        ++named.pledges;
        ++calls["pledge"];
    }

    function _beginCampaign(uint256 seed) private {
        Campaign memory campaign = Campaign({
            organiser: address(uint160(_campaigns.length)),
            product: product,
            pricePerHour: uint64(1 + seed % 3_000_000),
            duration: HOUR,
            goal: 2,
            windowStart: uint32(block.timestamp),
            deadline: uint32(block.timestamp + 3 hours),
            marketId: 0,
            providersHash: 0
        });
        _campaigns.push(Named(campaign, 0));
    }

    function closeCampaign(uint256 seed) external {
        pledge(seed);
        if (seed % 3 != 0) return;
        Named storage named = _newest();
        bytes32 id = pool.idOf(named.campaign);
        CampaignState memory state = pool.stateOf(id);
        PledgedAsk[] memory asks = _asks(named.campaign, state.slices);
        if (state.closed || asks.length < 2 || block.timestamp > named.campaign.deadline) return;
        uint256 before = book.moduleCash(address(pool));
        pool.closeCampaign(named.campaign, new address[](0), asks);
        uint256 leased = asks.length * _capOf(named.campaign.pricePerHour);
        pledgesLeased += leased;
        pledgesRefunded += before - book.moduleCash(address(pool)) - leased;
        for (uint256 place; place < named.pledges; ++place) {
            assertEq(pool.pledgeOf(id, place).amount, 0, "served or refunded");
        }
        ++calls["closeCampaign"];
        if (seed % 4 == 0) return;
        for (uint256 i; i < asks.length; ++i) {
            _useUp(asks[i].ask);
        }
    }

    /// @dev A lease that both end by agreement as soon as it began, so that its machine is free for others.
    function _useUp(Ask memory ask) private {
        address who = book.leaseOf(ask.provider, ask.index, ask.seq).buyer;
        Ready memory ready = Ready(ask.provider, ask.index, ask.seq, bytes32(0));
        Accept memory accepted = Accept(ask.provider, ask.index, ask.seq, uint32(block.timestamp));
        book.begin(ready, _signReady(ask.provider, ready), accepted, _signAccept(who, accepted));
        Voucher memory last = Voucher(ask.provider, ask.index, ask.seq, 0);
        _close(ask.provider, last, _signFinal(who, last), "");
    }

    /// @dev Whatever still occupies a machine, ended by a stranger.
    function clear(uint256 seed) external {
        _endLease(shorts[seed % 2], uint32((seed >> 8) % 3));
        ++calls["clear"];
    }

    /// @dev One of every free machine, at most `most`.
    function _asks(Campaign memory campaign, uint256 most) private view returns (PledgedAsk[] memory asks) {
        asks = new PledgedAsk[](6);
        uint256 n;
        for (uint256 i; i < 6 && n < most; ++i) {
            (address short, uint32 index) = (shorts[i / 3], uint32(i % 3));
            if (book.machineOf(short, index).status != Status.Free) continue;
            Ask memory ask = _askFrom(short, index);
            (ask.matcher, ask.minPricePerHour) = (address(pool), campaign.pricePerHour);
            asks[n++] = PledgedAsk(ask, _sign(short, _hash(ask)), 0);
        }
        assembly ("memory-safe") {
            mstore(asks, n)
        }
    }

    function refundPledge(uint256 seed) external {
        if (_campaigns.length == 0) return;
        Named storage named = _campaigns[seed % _campaigns.length];
        if (block.timestamp <= named.campaign.deadline || named.pledges == 0) return;
        _refund(named, (seed >> 8) % named.pledges);
    }

    function _refund(Named storage named, uint256 place) private {
        LockedPledge memory held = pool.pledgeOf(pool.idOf(named.campaign), place);
        if (held.amount == 0) return;
        uint256 before = _cash(held.buyer);
        vm.prank(stranger);
        pool.refundPledge(named.campaign, place);
        assertEq(_cash(held.buyer), before + held.amount, "all of it, to its own buyer");
        pledgesRefunded += held.amount;
        ++calls["refundPledge"];
    }

    function _newest() private view returns (Named storage) {
        return _campaigns[_campaigns.length - 1];
    }

    // ------------------------------------------------------------------------------------------------ the end

    /// @dev I7: a stranger ends every contract, lease, unit and pledge; then the vault is emptied.
    function drain() external {
        while (_contracts.length != 0) {
            finish(0);
        }
        skip(START + 1);
        for (uint256 i; i < 6; ++i) {
            _endLease(shorts[i / 3], uint32(i % 3));
        }
        while (_units.length != 0) {
            settleUnit(0);
        }
        skip(1 days);
        for (uint256 k; k < _campaigns.length; ++k) {
            for (uint256 place; place < _campaigns[k].pledges; ++place) {
                _refund(_campaigns[k], place);
            }
        }
        _retireAll();
        address[7] memory all = _accounts();
        for (uint256 i; i < 7; ++i) {
            uint64 cash = uint64(_cash(all[i]));
            if (cash == 0) continue;
            vm.prank(all[i]);
            book.withdraw(cash);
        }
        assertEq(token.balanceOf(address(book)), 0, "I7: something is left in the vault");
    }

    function _endLease(address short, uint32 index) private {
        uint24 seq = book.machineOf(short, index).seq;
        Lease memory lease = book.leaseOf(short, index, seq);
        if (lease.status == Status.Funded) {
            if (block.timestamp <= lease.start) vm.warp(lease.start + 1);
            book.refundUnstarted(short, index, seq);
        } else if (lease.status != Status.None) {
            uint256 opensAt = uint256(lease.start) + lease.duration + CLAIM + 1;
            if (block.timestamp < opensAt) vm.warp(opensAt);
            book.expire(short, index, seq);
        }
    }

    function _retireAll() private {
        address[3] memory owners = [shorts[0], shorts[1], provider];
        for (uint256 round; round < 2; ++round) {
            for (uint256 i; i < 7; ++i) {
                uint32 index = i == 6 ? INDEX : uint32(i % 3);
                vm.prank(owners[i / 3]);
                if (round == 0) book.retire(index);
                else book.finishRetire(index);
            }
            skip(RETIRE);
        }
    }
}
