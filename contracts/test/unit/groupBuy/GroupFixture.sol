// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IGroupBuy} from "../../../src/interfaces/IGroupBuy.sol";
import {ILeaseBook} from "../../../src/interfaces/ILeaseBook.sol";
import {ModuleHash} from "../../../src/libraries/ModuleHash.sol";
import {Campaign, Pledge, PledgedAsk} from "../../../src/types/GroupBuys.sol";
import {Ask} from "../../../src/types/Orders.sol";
import {ModuleAddresses} from "../../../src/types/Rows.sol";
import {Fixture} from "../../Fixture.sol";

/// @dev The fixture's world with GroupBuy in it: a campaign for three slices of DURATION at PRICE, the fixture's
/// provider with machines INDEX, INDEX + 1, ..., and a second buyer.
abstract contract GroupFixture is Fixture {
    uint32 internal constant MACHINES = 5;
    uint16 internal constant GOAL = 3;

    IGroupBuy internal module;
    bytes32 internal moduleSeparator;
    address internal other;
    Campaign internal campaign;
    bytes32 internal id;

    uint32 private _nextPledge = 80;

    function setUp() public virtual override {
        super.setUp();
        moduleSeparator = module.DOMAIN_SEPARATOR();
        other = _member("other");
        for (uint32 i = 1; i < MACHINES; ++i) {
            vm.prank(provider);
            book.addMachine(INDEX + i, BOND, product);
        }
        campaign = Campaign({
            organiser: stranger,
            product: product,
            pricePerHour: PRICE,
            duration: DURATION,
            goal: GOAL,
            windowStart: uint32(block.timestamp + 1 hours),
            deadline: uint32(block.timestamp + 10 days),
            marketId: marketId,
            providersHash: 0
        });
        id = module.idOf(campaign);
    }

    function _deploy(address token_) internal override returns (ILeaseBook deployed) {
        address predicted = vm.computeCreateAddress(address(this), vm.getNonce(address(this)) + BOOK_PARTS);
        deployed = _deployBook(token_, ModuleAddresses(address(0), address(0), predicted), 0);
        module = IGroupBuy(deployCode("GroupBuy.sol:GroupBuy", abi.encode(deployed)));
        assertEq(address(module), predicted);
    }

    // ---------------------------------------------------------------------------------------------- what they sign

    function _pledge(address who, uint16 slices) internal returns (Pledge memory) {
        return Pledge({
            buyer: who,
            campaignId: module.idOf(campaign),
            maxAmount: uint48(CAP * slices),
            slices: slices,
            nonce: _nextPledge++
        });
    }

    function _signPledge(address signer, Pledge memory pledge) internal view returns (bytes memory) {
        bytes32 hash = keccak256(abi.encode(ModuleHash.PLEDGE, pledge));
        bytes32 digest = keccak256(abi.encodePacked(hex"1901", moduleSeparator, hash));
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(keyOf[signer], digest);
        return abi.encodePacked(r, s, v);
    }

    function _pledgedAsk(uint32 index) internal view returns (PledgedAsk memory) {
        Ask memory ask = _askFrom(provider, index);
        ask.matcher = address(module);
        ask.startBy = campaign.deadline;
        return PledgedAsk({ask: ask, signature: _sign(nodeKey, _hash(ask)), place: 0});
    }

    function _asks(uint256 n) internal view returns (PledgedAsk[] memory asks) {
        asks = new PledgedAsk[](n);
        for (uint32 i; i < n; ++i) {
            asks[i] = _pledgedAsk(INDEX + i);
        }
    }

    // ---------------------------------------------------------------------------------------------- what they do

    function _lock(address who, uint16 slices) internal returns (uint256 place) {
        Pledge memory pledge = _pledge(who, slices);
        bytes memory signature = _signPledge(who, pledge);
        vm.prank(stranger);
        place = module.lockPledge(campaign, pledge, signature);
    }

    function _closeWith(PledgedAsk[] memory asks) internal {
        vm.prank(stranger);
        module.closeCampaign(campaign, new address[](0), asks);
    }

    /// @dev Two slices of the buyer, one of the other, and closing begins.
    function _full() internal {
        _lock(buyer, 2);
        _lock(other, 1);
        vm.warp(campaign.windowStart);
    }

    function _assertSolventWithModule() internal view {
        uint256 owed = _cash(buyer) + _cash(provider) + _cash(matcher) + _cash(other);
        for (uint32 index = INDEX; index < INDEX + MACHINES; ++index) {
            uint24 seq = book.machineOf(provider, index).seq;
            owed += uint256(book.machineOf(provider, index).bond) * 1e6;
            owed += book.leaseOf(provider, index, seq).cap - book.leaseOf(provider, index, seq).paid;
        }
        assertEq(token.balanceOf(address(book)), owed + book.moduleCash(address(module)), "I1");
        assertEq(token.balanceOf(address(module)), 0, "the module holds nothing");
    }
}
