// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {AccountWord} from "../../src/types/AccountWord.sol";
import {BatchState} from "../../src/types/Audits.sol";
import {BatchWord, BatchWordLibrary} from "../../src/types/BatchWord.sol";
import {ChallengeWord, DisputeWord} from "../../src/types/DisputeWord.sol";
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

    function testFuzz_batchWord_whenCommitted_thenEveryFieldIsWhatItWas(
        uint48 value,
        uint24 locked,
        uint32 buyerId,
        uint16 marketId,
        uint32 number,
        uint256 raw
    ) external {
        vm.roll(uint40(raw));
        vm.warp(uint32(raw >> 40));
        (uint256 n, uint256 bps) = (raw % 100 + 1, raw % 12_001);
        BatchWord w = BatchWordLibrary.committed(value, bps, locked, n, buyerId, marketId, number);
        _assertBatch(w, [value, bps, locked, n, uint256(BatchState.COMMITTED), 0, buyerId, marketId, number]);
        w = w.withState(BatchState.SLASHED);
        _assertBatch(w, [value, bps, locked, n, uint256(BatchState.SLASHED), 0, buyerId, marketId, number]);
        w = w.withLocked(locked / 2).forfeited();
        _assertBatch(w, [value, bps, locked / 2, n, uint256(BatchState.SLASHED), 1, buyerId, marketId, number]);
        assertEq(w.blockNumber(), block.number);
        assertEq(w.committedAt(), block.timestamp);
    }

    function _assertBatch(BatchWord w, uint256[9] memory needed) private pure {
        uint256[9] memory found = [
            w.value(),
            w.auditBps(),
            w.locked(),
            w.n(),
            uint256(w.state()),
            w.isForfeit() ? 1 : 0,
            w.buyerId(),
            w.marketId(),
            w.number()
        ];
        for (uint256 i; i < needed.length; ++i) {
            assertEq(found[i], needed[i]);
        }
    }

    function testFuzz_disputeWord_whenSegmentsAreAccusedAndSettled_thenNothingElseChanges(
        uint256 raw,
        uint256 i,
        uint32 until
    ) external pure {
        i %= 100;
        DisputeWord w = DisputeWord.wrap(raw & ~(uint256(1) << i) & ~(uint256(1) << (100 + i)));
        DisputeWord accused = w.withAccused(i, until);
        assertEq(accused.accused(), w.accused() | (1 << i));
        assertEq(accused.settled(), w.settled());
        assertEq(accused.returned(), w.returned());
        assertEq(accused.until(), until);
        DisputeWord settled = accused.withSettled(i);
        assertEq(settled.accused(), w.accused());
        assertEq(settled.settled(), w.settled() | (1 << i));
        assertEq(settled.returned(), w.returned());
        assertEq(settled.until(), until);
        DisputeWord returned = settled.withReturned(raw % 1_000_001);
        assertEq(returned.returned(), raw % 1_000_001);
        assertEq(returned.accused(), settled.accused());
        assertEq(returned.settled(), settled.settled());
        assertEq(returned.until(), until);
    }

    function testFuzz_challengeWord_whenPointsAreAskedAndEnded_thenOthersAreNot(
        uint256 raw,
        uint256 j,
        uint256 m,
        uint32 until
    ) external pure {
        (j, m) = (j % 100, m % 100 + 1);
        ChallengeWord w = ChallengeWord.wrap(raw & ~(uint256(1) << j) & ~(uint256(1) << (100 + j)));
        ChallengeWord asked = w.withAsked(j, m, until);
        assertEq(asked.open(), w.open() | (1 << j));
        assertEq(asked.asked(), w.asked() | (1 << j));
        assertEq(asked.silent(), w.silent());
        assertEq(asked.points(), m);
        assertEq(asked.until(), until);
        _assertEnded(w, asked.withAnswered(j), j, false);
        _assertEnded(w, asked.withSilent(j), j, true);
    }

    function _assertEnded(ChallengeWord before, ChallengeWord w, uint256 j, bool silent) private pure {
        assertEq(w.open(), before.open());
        assertEq(w.asked(), before.asked() | (1 << j));
        assertEq(w.silent(), silent ? before.silent() | (1 << j) : before.silent());
    }
}
