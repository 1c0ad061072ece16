// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IFutures} from "../../../src/interfaces/IFutures.sol";
import {IGroupBuy} from "../../../src/interfaces/IGroupBuy.sol";
import {ILeaseBook} from "../../../src/interfaces/ILeaseBook.sol";
import {ModuleHash} from "../../../src/libraries/ModuleHash.sol";
import {FutureContract, FutureOrder, FuturePair, FutureUnit, FuturesRules} from "../../../src/types/Futures.sol";
import {Campaign, LockedPledge, Pledge} from "../../../src/types/GroupBuys.sol";
import {ModuleAddresses} from "../../../src/types/Rows.sol";
import {Fixture} from "../../Fixture.sol";

/// @dev A book with Futures and GroupBuy, two longs, two shorts with three machines each, and what is known of their
/// contracts, units and pledges without asking the modules' sums.
abstract contract ModulesWorld is Fixture {
    struct UnitName {
        address provider;
        uint32 index;
        uint24 seq;
    }

    struct Named {
        Campaign campaign;
        uint256 pledges;
    }

    uint24 internal constant HOUR = 1 hours;

    IFutures internal market;
    IGroupBuy internal pool;
    address[2] internal longs;
    address[2] internal shorts;

    uint40[] internal _contracts;
    mapping(uint40 id => uint32[] indexes) internal _nominated;
    /// The last orders that opened a contract, and the units of each order in contracts.
    FuturePair internal _lastPair;
    mapping(bytes32 orderHash => uint256) internal _filled;
    UnitName[] internal _units;
    Named[] internal _campaigns;

    /// Margins taken and given back or forfeited; pledges taken, leased and refunded.
    uint256 public marginsIn;
    uint256 public marginsOut;
    uint256 public pledgesIn;
    uint256 public pledgesLeased;
    uint256 public pledgesRefunded;
    mapping(string call => uint256) public calls;

    constructor() {
        Fixture.setUp();
        for (uint256 i; i < 2; ++i) {
            longs[i] = _member(string.concat("long ", vm.toString(i)));
            shorts[i] = _member(string.concat("short ", vm.toString(i)));
            for (uint32 index; index < 3; ++index) {
                vm.prank(shorts[i]);
                book.addMachine(index, BOND, product);
            }
        }
    }

    function setUp() public override {}

    function _deploy(address token_) internal override returns (ILeaseBook deployed) {
        uint256 next = vm.getNonce(address(this)) + BOOK_PARTS;
        address first = vm.computeCreateAddress(address(this), next);
        address second = vm.computeCreateAddress(address(this), next + 1);
        deployed = _deployBook(token_, ModuleAddresses(address(0), first, second), 0);
        FuturesRules memory rules = FuturesRules(1500, 2500, 1, 1 hours, 30 minutes);
        market = IFutures(deployCode("Futures.sol:Futures", abi.encode(deployed, rules)));
        pool = IGroupBuy(deployCode("GroupBuy.sol:GroupBuy", abi.encode(deployed)));
    }

    // ---------------------------------------------------------------------------------------------- orders

    function _nonceOf(address who) internal view returns (uint32) {
        uint32 base = book.accountOf(who).nonceBase;
        uint128 bits = book.accountOf(who).nonceBits;
        for (uint32 i; i < 128; ++i) {
            if (bits & (uint128(1) << i) == 0) return base + i;
        }
        return base + 128;
    }

    function _order(address who, bool isBuy, uint32 start, uint64 price) internal view returns (FutureOrder memory) {
        return FutureOrder({
            trader: who,
            isBuy: isBuy,
            product: product,
            windowStart: start,
            windowSeconds: HOUR,
            units: 3,
            limitPricePerHour: price,
            startBy: start,
            nonce: _nonceOf(who),
            matcher: matcher
        });
    }

    function _signFor(bytes32 separator, address signer, bytes32 structHash) internal view returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) =
            vm.sign(keyOf[signer], keccak256(abi.encodePacked(hex"1901", separator, structHash)));
        return abi.encodePacked(r, s, v);
    }

    function _hashOf(FutureOrder memory order) internal pure returns (bytes32) {
        return keccak256(abi.encode(ModuleHash.FUTURE_ORDER, order));
    }

    function _signOrder(FutureOrder memory order) internal view returns (bytes memory) {
        return _signFor(market.DOMAIN_SEPARATOR(), order.trader, _hashOf(order));
    }

    function _signPledge(Pledge memory pledge) internal view returns (bytes memory) {
        bytes32 hash = keccak256(abi.encode(ModuleHash.PLEDGE, pledge));
        return _signFor(pool.DOMAIN_SEPARATOR(), pledge.buyer, hash);
    }

    function _capOf(uint64 price) internal pure returns (uint256) {
        return uint256(price) * GPUS * HOUR / 3600;
    }

    // ---------------------------------------------------------------------------------------------- what should hold

    function _accounts() internal view returns (address[7] memory) {
        return [longs[0], longs[1], shorts[0], shorts[1], buyer, provider, matcher];
    }

    function _marginsHeld() internal view returns (uint256 held) {
        for (uint256 k; k < _contracts.length; ++k) {
            FutureContract memory found = market.contractOf(_contracts[k]);
            held += uint256(found.longMargin) + found.shortMargin;
        }
        for (uint256 k; k < _units.length; ++k) {
            FutureUnit memory unit = market.unitOf(_units[k].provider, _units[k].index, _units[k].seq);
            held += uint256(unit.longMargin) + unit.shortMargin;
        }
    }

    function _capsHeld() internal view returns (uint256 held) {
        for (uint256 k; k < _contracts.length; ++k) {
            FutureContract memory found = market.contractOf(_contracts[k]);
            if (found.funded) held += found.units * _capOf(found.price);
        }
    }

    function _pledgesHeld() internal view returns (uint256 held) {
        for (uint256 k; k < _campaigns.length; ++k) {
            bytes32 id = pool.idOf(_campaigns[k].campaign);
            for (uint256 place; place < _campaigns[k].pledges; ++place) {
                LockedPledge memory pledge = pool.pledgeOf(id, place);
                held += pledge.amount;
            }
        }
    }

    /// @dev I1, and that what each module holds is what its contracts and pledges say.
    function assertSolvent() external view {
        address[7] memory all = _accounts();
        uint256 owed = uint256(book.machineOf(provider, INDEX).bond) * 1e6;
        for (uint256 i; i < 7; ++i) {
            owed += _cash(all[i]);
        }
        for (uint256 i; i < 2; ++i) {
            for (uint32 index; index < 3; ++index) {
                uint24 seq = book.machineOf(shorts[i], index).seq;
                owed += uint256(book.machineOf(shorts[i], index).bond) * 1e6;
                owed += book.leaseOf(shorts[i], index, seq).cap - book.leaseOf(shorts[i], index, seq).paid;
            }
        }
        uint256 futures = book.moduleCash(address(market));
        uint256 pledges = book.moduleCash(address(pool));
        assertEq(token.balanceOf(address(book)), owed + futures + pledges, "I1");
        assertEq(futures, _marginsHeld() + _capsHeld(), "what Futures holds");
        assertEq(pledges, _pledgesHeld(), "what GroupBuy holds");
        assertEq(token.balanceOf(address(market)) + token.balanceOf(address(pool)), 0, "modules hold no tokens");
    }

    function assertMarginsConserved() external view {
        assertEq(marginsIn, marginsOut + _marginsHeld(), "I11");
    }

    function assertNoOrderIsOverfilled() external view {
        _assertWithin(_lastPair.buy);
        _assertWithin(_lastPair.sell);
    }

    function _assertWithin(FutureOrder memory order) private view {
        bytes32 hash = _hashOf(order);
        assertLe(_filled[hash], order.units, "units in contracts within the order's");
        (uint256 told,) = market.progressOf(order.trader, hash);
        if (told != 0) assertEq(told, _filled[hash], "what Futures knows of an order");
    }

    function assertPledgesConserved() external view {
        assertEq(pledgesIn, pledgesLeased + pledgesRefunded + _pledgesHeld(), "I12");
    }
}
