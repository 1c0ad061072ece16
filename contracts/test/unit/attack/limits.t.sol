// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {Ask, Bid, SignedMatch} from "../../../src/types/Orders.sol";
import {Packing} from "../../Packing.sol";
import {Vm} from "forge-std/Vm.sol";

/// @dev The largest batches that a transaction can carry: 2^24 gas (EIP-7825), 128 KiB of calldata.
/// forge-config: default.isolate = true
contract AttackByLimits is Packing {
    uint256 private constant GAS_MAX = 1 << 24;
    uint256 private constant BYTES_MAX = 128 * 1024;
    uint256 private constant BUYERS = 20;

    address[] private _buyers;

    function setUp() public override {
        super.setUp();
        for (uint256 i; i < BUYERS; ++i) {
            _buyers.push(_member(string.concat("buyer ", vm.toString(i))));
        }
    }

    function _entries(uint256 n) private returns (SignedMatch[] memory entries) {
        entries = new SignedMatch[](n);
        token.mint(provider, uint64(n * 4e6));
        vm.startPrank(provider);
        book.deposit(provider, uint64(n * 4e6));
        for (uint256 i; i < n; ++i) {
            book.addMachine(uint32(1000 + i), 3, product);
        }
        vm.stopPrank();
        for (uint256 i; i < n; ++i) {
            Ask memory ask = _askFrom(provider, uint32(1000 + i));
            Bid memory bid = _bidFrom(_buyers[i % BUYERS]);
            bid.duration = 1 hours;
            bid.nonce = uint32(i / BUYERS);
            entries[i] = _paired(ask, bid);
        }
    }

    function _opened() private returns (uint256 count) {
        Vm.Log[] memory logs = vm.getRecordedLogs();
        for (uint256 i; i < logs.length; ++i) {
            if (logs[i].topics[0] == ILeaseBookLog.LeaseOpened.selector) ++count;
        }
    }

    function test_attack_batchAtTheCalldataLimitOpensWithinTheGasLimit() external {
        uint256 n = (BYTES_MAX - 1024) / 256;
        bytes memory data = _packMatches(_entries(n));
        vm.recordLogs();
        vm.prank(matcher);
        book.openPacked(product, PRICE, marketId, data);
        assertEq(_opened(), n);
        assertLt(vm.lastCallGas().gasTotalUsed, GAS_MAX);
    }

    function test_attack_batchByTheAbiAtTheCalldataLimitOpensWithinTheGasLimit() external {
        uint256 n = (BYTES_MAX - 1024) / 1152;
        SignedMatch[] memory entries = _entries(n);
        vm.recordLogs();
        vm.prank(matcher);
        book.openBatch(product, PRICE, marketId, entries);
        assertEq(_opened(), n);
        assertLt(vm.lastCallGas().gasTotalUsed, GAS_MAX);
    }

    function test_attack_gasThatRunsOutOpensNothing() external {
        bytes memory data = _packMatches(_entries(20));
        bytes memory call = abi.encodeCall(book.openPacked, (product, PRICE, marketId, data));
        uint256 cash = _cash(_buyers[0]);
        vm.prank(matcher);
        (bool ok,) = address(book).call{gas: 300_000}(call);
        assertFalse(ok);
        assertEq(_cash(_buyers[0]), cash);
        for (uint32 i; i < 20; ++i) {
            assertEq(book.machineOf(provider, 1000 + i).seq, 0);
        }
    }
}
