// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBook} from "../../../src/interfaces/ILeaseBook.sol";
import {Status} from "../../../src/types/Lifecycle.sol";
import {Lease, Machine} from "../../../src/types/Rows.sol";
import {Fixture} from "../../Fixture.sol";
import {LeaseStore} from "../stores/LeaseStore.sol";

/// @dev Three buyers, three providers with two machines each, a market; and how a handler acts and counts.
abstract contract World is Fixture, LeaseStore {
    address[] internal _buyers;
    address[] internal _providers;

    constructor() {
        Fixture.setUp();
        for (uint256 i; i < 3; ++i) {
            _buyers.push(_member(string.concat("buyer ", vm.toString(i))));
            _providers.push(_member(string.concat("provider ", vm.toString(i))));
            for (uint32 index = 1; index <= 2; ++index) {
                vm.prank(_providers[i]);
                book.addMachine(index, 40, product);
                _slots.push(Slot({provider: _providers[i], index: index, seq: 0, bond: 40}));
            }
        }
        marketIn = _cash(matcher);
    }

    function setUp() public override {}

    function theBook() external view returns (ILeaseBook) {
        return book;
    }

    function vaultBalance() external view returns (uint256) {
        return token.balanceOf(address(book));
    }

    function feeRate() external pure returns (uint256) {
        return FEE_BPS;
    }

    function theMarket() external view returns (address) {
        return matcher;
    }

    function accounts() public view returns (address[] memory all) {
        all = new address[](_buyers.length + _providers.length + 3);
        uint256 n;
        for (uint256 i; i < _buyers.length; ++i) {
            (all[n], all[n + 1]) = (_buyers[i], _providers[i]);
            n += 2;
        }
        (all[n], all[n + 1], all[n + 2]) = (buyer, provider, matcher);
    }

    /// @dev The fixture's own machine is idle, its bond counts all the same.
    function idleBond() external view returns (uint256) {
        return uint256(book.machineOf(provider, INDEX).bond) * 1e6;
    }

    /// @dev The first machine from a random one on that is in state `a` or `b`; the random one when none is.
    function _pick(uint256 seed, Status a, Status b)
        internal
        view
        returns (uint256 i, Slot memory slot, Machine memory machine)
    {
        for (uint256 step; step <= _slots.length; ++step) {
            i = (seed % _slots.length + step) % _slots.length;
            slot = _slots[i];
            machine = book.machineOf(slot.provider, slot.index);
            if (machine.status == a || machine.status == b) break;
        }
    }

    function _leaseAt(Slot memory slot) internal view returns (Lease memory) {
        return book.leaseOf(slot.provider, slot.index, slot.seq);
    }

    function _isRunning(Status status) internal pure returns (bool) {
        return status == Status.Active || status == Status.Stopped;
    }

    modifier counted(string memory name) {
        _;
        ++calls[name];
    }
}
