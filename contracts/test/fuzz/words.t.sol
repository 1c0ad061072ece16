// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {AccountWord} from "../../src/types/AccountWord.sol";
import {LeaseWord} from "../../src/types/LeaseWord.sol";
import {Status} from "../../src/types/Lifecycle.sol";
import {ProductWord} from "../../src/types/ProductWord.sol";
import {Test} from "forge-std/Test.sol";

/// @dev Every setter moves its own field and no other.
contract FuzzWords is Test {
    function _fields(LeaseWord w) private pure returns (uint256[10] memory) {
        return [
            w.cap(),
            w.paid(),
            uint256(w.marketId()),
            uint256(w.buyerId()),
            w.start(),
            w.duration(),
            uint256(w.seq()),
            w.bond(),
            uint256(w.status()),
            uint256(w.flags())
        ];
    }

    function _assertOnly(LeaseWord before, LeaseWord changed, uint256 field, uint256 value) private pure {
        (uint256[10] memory a, uint256[10] memory b) = (_fields(before), _fields(changed));
        for (uint256 i; i < a.length; ++i) {
            assertEq(b[i], i == field ? value : a[i]);
        }
    }

    function testFuzz_leaseWord_whenAFieldIsSet_thenOnlyItChanges(uint256 raw, uint256 value) external pure {
        LeaseWord w = LeaseWord.wrap((raw & ~(uint256(0xf) << 248)) | (raw % 7) << 248);
        _assertOnly(w, w.withCap(uint48(value)), 0, uint48(value));
        _assertOnly(w, w.withPaid(uint48(value)), 1, uint48(value));
        _assertOnly(w, w.withStart(uint32(value)), 4, uint32(value));
        _assertOnly(w, w.withDuration(uint24(value)), 5, uint24(value));
        _assertOnly(w, w.withBond(uint24(value)), 7, uint24(value));
        _assertOnly(w, w.withStatus(Status(value % 7)), 8, value % 7);
        uint8 flag = uint8(1 << (value % 4));
        _assertOnly(w, w.withFlag(flag), 9, w.flags() | flag);
        assertTrue(w.withFlag(flag).has(flag));
    }

    function testFuzz_leaseWord_whenFundedAndFreed_thenBondAndNumberRemain(uint24 bond, uint48 cap, uint24 seq)
        external
        pure
    {
        LeaseWord idle = LeaseWord.wrap(0).idle(Status.Free).withBond(bond);
        LeaseWord w = idle.funded({
            cap_: cap,
            marketId_: type(uint16).max,
            buyerId_: type(uint32).max,
            deadline: type(uint32).max,
            duration_: type(uint24).max,
            seq_: seq,
            flags_: 3
        });
        uint256[10] memory needed = [
            uint256(cap),
            0,
            type(uint16).max,
            type(uint32).max,
            type(uint32).max,
            type(uint24).max,
            seq,
            bond,
            uint256(Status.Funded),
            3
        ];
        uint256[10] memory found = _fields(w);
        for (uint256 i; i < needed.length; ++i) {
            assertEq(found[i], needed[i]);
        }
        found = _fields(w.idle(Status.Free));
        needed = [uint256(0), 0, 0, 0, 0, 0, seq, bond, uint256(Status.Free), 0];
        for (uint256 i; i < needed.length; ++i) {
            assertEq(found[i], needed[i]);
        }
    }

    function testFuzz_productWord_whenAFieldIsSet_thenOnlyItChanges(uint256 raw, uint24 seq, uint32 when)
        external
        pure
    {
        ProductWord w = ProductWord.wrap(raw);
        ProductWord noticed = w.withNotice(seq, when);
        assertEq(noticed.noticeAt(seq), when);
        assertEq(noticed.noticeAt(seq ^ 1), 0, "another lease's notice");
        assertEq(noticed.product(), w.product());
        assertEq(noticed.locked(), w.locked());
        assertEq(noticed.retireAt(), w.retireAt());
        assertEq(noticed.askFloor(), w.askFloor());
        ProductWord retiring = w.withRetireAt(when);
        assertEq(retiring.retireAt(), when);
        assertEq(retiring.askFloor(), w.askFloor());
        assertEq(retiring.product(), w.product());
        ProductWord raised = w.withAskFloor(seq);
        assertEq(raised.askFloor(), seq);
        assertEq(raised.retireAt(), w.retireAt());
        ProductWord renewed = raised.renewed(9);
        assertEq(renewed.product(), 9);
        assertEq(renewed.askFloor(), seq);
        assertEq(renewed.locked() + renewed.retireAt() + renewed.noticeAt(seq | 1), 0);
    }

    function testFuzz_accountWord_whenCashMoves_thenNothingElseDoes(uint256 raw, uint64 amount) external pure {
        AccountWord w = AccountWord.wrap(raw);
        amount = uint64(bound(amount, 0, type(uint64).max - w.cash()));
        AccountWord richer = w.plus(amount);
        assertEq(richer.cash(), w.cash() + amount);
        assertEq(AccountWord.unwrap(richer) >> 64, raw >> 64);
        assertEq(AccountWord.unwrap(richer.minus(amount)), raw);
    }
}
