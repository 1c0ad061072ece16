// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {FutureOrder, FuturePair} from "../../src/types/Futures.sol";
import {PledgedAsk} from "../../src/types/GroupBuys.sol";
import {Voucher} from "../../src/types/Orders.sol";
import {FuturesFixture} from "../unit/futures/FuturesFixture.sol";
import {GroupFixture} from "../unit/groupBuy/GroupFixture.sol";

/// @dev Gas of a contract of one unit from its opening to its margins' payout, each call its own transaction; both
/// sides and the machine have been through one before.
/// forge-config: default.isolate = true
contract FuturesGas is FuturesFixture {
    function setUp() public override {
        super.setUp();
        _life(false);
        windowStart = uint32(block.timestamp / WINDOW * WINDOW + 3 * WINDOW);
    }

    function _record(bool wanted, string memory step) private {
        if (wanted) vm.snapshotValue("gas_per_future", step, vm.lastCallGas().gasTotalUsed);
    }

    function _life(bool wanted) private {
        (FutureOrder memory buy, FutureOrder memory sell) = (_order(buyer, true), _order(provider, false));
        (buy.units, sell.units) = (1, 1);
        FuturePair memory pair = _pairOf(buy, sell);
        pair.units = 1;
        _submitPair(pair);
        _record(wanted, "openFutures n=1");
        uint40 id = module.contractCount();
        _fundIt(id);
        _record(wanted, "fund");
        _nominateIt(id, _firstOnly());
        _record(wanted, "nominate");
        vm.warp(windowStart);
        module.deliver(id, _firstOnly());
        _record(wanted, "deliver");
        uint24 seq = book.machineOf(provider, INDEX).seq;
        _begin(seq, uint32(block.timestamp));
        _record(wanted, "begin");
        skip(WINDOW);
        Voucher memory last = _voucher(seq, UNIT_CAP);
        _close(matcher, last, _signVoucher(sessionKey, last), "");
        _record(wanted, "close");
        module.settleUnit(provider, INDEX, seq);
        _record(wanted, "settleUnit");
    }

    function test_gas_futureFromOpenToSettled() external {
        _life(true);
        assertEq(book.moduleCash(address(module)), 0);
    }

    function test_gas_futureOfTenPairs() external {
        FuturePair[] memory pairs = new FuturePair[](10);
        for (uint256 i; i < 10; ++i) {
            pairs[i] = _pair();
        }
        vm.prank(matcher);
        module.openFutures(_series(), PRICE, pairs);
        vm.snapshotValue("gas_per_future", "openFutures n=10", vm.lastCallGas().gasTotalUsed / 10);
    }

    function test_gas_futureOfOneLongAndTenShorts() external {
        FutureOrder memory buy = _order(buyer, true);
        buy.units = 10 * UNITS;
        FuturePair[] memory pairs = new FuturePair[](10);
        for (uint256 i; i < 10; ++i) {
            pairs[i] = _pairOf(buy, _order(provider, false));
        }
        vm.prank(matcher);
        module.openFutures(_series(), PRICE, pairs);
        vm.snapshotValue("gas_per_future", "openFutures n=10, one long", vm.lastCallGas().gasTotalUsed / 10);
        assertEq(module.contractCount(), 11);
    }
}

/// @dev Gas of a group buy of twenty people, a machine each.
/// forge-config: default.isolate = true
contract GroupBuyGas is GroupFixture {
    uint32 private constant PEOPLE = 20;

    address[] private _people;

    function setUp() public override {
        super.setUp();
        for (uint32 i; i < PEOPLE; ++i) {
            _people.push(_member(string.concat("pledger ", vm.toString(i))));
            if (i < MACHINES) continue;
            vm.prank(provider);
            book.addMachine(INDEX + i, BOND, product);
        }
        campaign.goal = uint16(PEOPLE);
    }

    function test_gas_groupBuyOfTwenty() external {
        uint256 locked;
        for (uint256 i; i < PEOPLE; ++i) {
            _lock(_people[i], 1);
            locked += vm.lastCallGas().gasTotalUsed;
        }
        vm.snapshotValue("gas_per_group_buy", "lockPledge", locked / PEOPLE);
        vm.warp(campaign.windowStart);
        PledgedAsk[] memory asks = _asks(PEOPLE);
        _closeWith(asks);
        vm.snapshotValue("gas_per_group_buy", "closeCampaign n=20", vm.lastCallGas().gasTotalUsed / PEOPLE);
        assertEq(book.moduleCash(address(module)), 0);
    }

    function test_gas_groupBuyThatFails() external {
        _lock(_people[0], 1);
        vm.warp(campaign.deadline + 1);
        module.refundPledge(campaign, 0);
        vm.snapshotValue("gas_per_group_buy", "refundPledge", vm.lastCallGas().gasTotalUsed);
    }
}
