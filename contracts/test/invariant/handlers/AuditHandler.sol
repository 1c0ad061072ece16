// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBook} from "../../../src/interfaces/ILeaseBook.sol";
import {Batch, BatchState, Held, Opening, Sibling, VerdictResult} from "../../../src/types/Audits.sol";
import {Status} from "../../../src/types/Lifecycle.sol";
import {Accept, Ask, Bid, Ready, Voucher} from "../../../src/types/Orders.sol";
import {Lease, Machine} from "../../../src/types/Rows.sol";
import {AuditFixture} from "../../unit/verification/AuditFixture.sol";
import {AuditWorld} from "./AuditWorld.sol";

/// @dev The verified and plain leases of one machine, of two buyers, and their batches, ended in every way. Calls
/// must succeed; what must be refused is the unit tests' business.
contract AuditHandler is AuditWorld {
    constructor() {
        AuditFixture.setUp();
        other = _member("other buyer");
        vm.prank(provider);
        book.addBond(INDEX, 400);
    }

    function setUp() public override {}

    // ------------------------------------------------------------------------------------------------ leases

    function open(uint256 seed) external {
        Machine memory machine = book.machineOf(provider, INDEX);
        if (machine.status != Status.Free) return;
        (Ask memory ask, Bid memory bid) = _verifiedOrders();
        bid.auditBps = uint16(seed % 2000);
        if (seed % 5 == 0) (ask.flags, bid.flags, bid.auditBps) = (0, 0, 0);
        bid.buyer = seed % 3 == 0 ? other : buyer;
        bid.nonce = book.accountOf(bid.buyer).nonceBase + uint32(seed % 128);
        _submit(matcher, PRICE, _paired(ask, bid));
        if (_leaseOf(ask.seq).status != Status.Funded) {
            ++calls["open skipped"];
            return;
        }
        ++calls["open"];
        buyerOf[ask.seq] = bid.buyer;
        Ready memory ready = _readyOf(provider, INDEX, ask.seq);
        Accept memory accepted = Accept(provider, INDEX, ask.seq, uint32(block.timestamp));
        bytes memory signature = _signAccept(bid.buyer, accepted);
        book.begin(ready, _signReady(provider, ready), accepted, signature);
        skip(20 minutes + seed % 2 hours);
        settle(seed);
    }

    function settle(uint256 seed) public {
        (uint24 seq, Lease memory lease) = _running();
        if (seq == 0) return;
        Voucher memory voucher = _voucher(seq, lease.paid + (lease.ceiling - lease.paid) * (seed % 101) / 100);
        _settle(voucher, _signVoucher(lease.buyer, voucher));
        ++calls["settle"];
    }

    function close(uint256 seed) external {
        (uint24 seq, Lease memory lease) = _running();
        if (seq == 0) return;
        if (seed % 4 == 0) {
            vm.prank(lease.buyer);
            book.stop(provider, INDEX, seq);
            skip(CLAIM + 1);
            book.expire(provider, INDEX, seq);
        } else {
            Voucher memory voucher = _voucher(seq, lease.ceiling);
            bytes memory agreed = _signFinal(lease.buyer, voucher);
            _close(matcher, voucher, agreed, _signFinal(provider, voucher));
        }
        ++calls["close"];
        if (seed % 8 > 1) commit(seed); // a node does so at once, mostly
    }

    function wait_(uint256 seed) external {
        uint32[4] memory steps = [uint32(1 minutes), 10 minutes, 1 hours, 25 hours];
        skip(steps[seed % 4]);
        vm.roll(block.number + 1 + seed % 3);
    }

    // ------------------------------------------------------------------------------------------------ batches

    function commit(uint256 seed) public {
        uint24 seq = _heldSeq(seed);
        if (seq == 0) return;
        Held memory held = _heldOf(seq);
        bool late = held.endedAt != 0 && block.timestamp > held.endedAt + COMMIT_WINDOW;
        uint256 free = _bond() * 1e6 - _locked();
        if (book.isBarred(provider)) return;
        if (late || free < uint256(held.amount) * 7 + 1e6) return;
        _commitWith(seq, held.nextBatchNo);
        _pending.push(Named(seq, held.nextBatchNo));
        ++calls["commit"];
        if (seed % 8 > 2) draw(seed);
    }

    /// @dev The provider signs by itself: node keys expire before fuzzing ends.
    function _commitWith(uint24 seq, uint16 batchNo) private {
        vm.prank(provider);
        module.commitBatch(_commit(seq, batchNo), "");
    }

    function returnHeld(uint256 seed) external {
        uint24 seq = _heldSeq(seed);
        Held memory held = _heldOf(seq);
        if (seq == 0 || held.endedAt == 0) return;
        if (block.timestamp <= held.endedAt + COMMIT_WINDOW) {
            if (seed % 4 != 0) return;
            vm.warp(held.endedAt + COMMIT_WINDOW + 1);
        }
        uint256 before = _cash(held.buyer);
        book.returnHeld(provider, INDEX, seq);
        assertEq(_cash(held.buyer), before + held.amount + held.audit, "all of it, to its own buyer");
        ++calls["returnHeld"];
    }

    function draw(uint256 seed) public {
        (bool found, uint256 k) = _pick(seed, BatchState.COMMITTED);
        if (!found) return;
        Batch memory batch = _batchAt(k);
        if (block.number < batch.blockNumber + 2) vm.roll(batch.blockNumber + 2);
        if (block.number > batch.blockNumber + 256 || batch.number / 2 >= CHAIN_LENGTH) return;
        vm.setBlockhash(batch.blockNumber + 1, keccak256(abi.encode(batch.blockNumber)));
        _reveal(_pending[k].seq, _pending[k].batchNo, _preimageFor(batch.number));
        ++calls["draw"];
        if (seed % 3 != 0) accuse(seed / 3);
        else if (seed % 2 != 0) challenge(seed / 3);
    }

    function challenge(uint256 seed) public {
        (bool found, uint256 k) = _pick(seed, BatchState.DRAWN);
        if (!found || block.timestamp > _batchAt(k).committedAt + HARD_CAP) return;
        Named memory named = _pending[k];
        uint16 j = uint16(seed % 3);
        vm.prank(verifier[seed % 2]);
        try module.challenge(provider, INDEX, named.seq, named.batchNo, j, 3) {
            ++calls["challenge"];
        } catch {
            return; // asked for before
        }
        if (seed % 4 < 3) answer(seed / 4);
    }

    /// @dev Shows a leaf that is asked for, or lets the time pass and convicts.
    function answer(uint256 seed) public {
        (bool found, uint256 k) = _pickChallenged(seed);
        if (!found) return;
        Named memory named = _pending[k];
        Batch memory batch = _batchAt(k);
        uint16 j;
        while (batch.challenged & (1 << j) == 0) ++j;
        if (block.timestamp <= batch.answerBy && seed % 2 == 0) {
            uint16 i = _segmentAt(batch.seed, j);
            (, Sibling[] memory proof) = _tree(named.seq, named.batchNo, i);
            module.openLeaf(j, _leaf(named.seq, named.batchNo, i), proof);
            ++calls["openLeaf"];
        } else {
            if (block.timestamp <= batch.answerBy) vm.warp(batch.answerBy + 1);
            _convictSilent(named, j);
            ++calls["convictSilent"];
        }
    }

    function _convictSilent(Named memory named, uint16 j) private {
        uint256 bond = _bond();
        module.convictSilent(provider, INDEX, named.seq, named.batchNo, j);
        bondGone += bond - _bond();
    }

    function accuse(uint256 seed) public {
        (bool found, uint256 k) = _pick(seed, seed % 4 == 0 ? BatchState.ACCUSED : BatchState.DRAWN);
        if (!found || block.timestamp > _batchAt(k).committedAt + HARD_CAP) return;
        uint16 i = uint16(seed % 3);
        if ((_batchAt(k).settled | _batchAt(k).accused) & (1 << i) != 0) return;
        if (_isSilent(_batchAt(k), i)) return;
        _accuse(_pending[k].seq, _pending[k].batchNo, i);
        ++calls["accuse"];
        if (seed % 2 == 0) judge(seed / 2);
    }

    function judge(uint256 seed) public {
        (bool found, uint256 k) = _pick(seed, BatchState.ACCUSED);
        if (!found) return;
        Named memory named = _pending[k];
        uint16 i;
        while (_batchAt(k).accused & (1 << i) == 0) ++i;
        if (seed % 2 == 0 && _mayConvict(named.seq, seed)) {
            skip(CHALLENGE + 1);
            _convictAt(k, i);
        } else {
            // Too late to contest, it is convicted.
            try this.contestNow(named.seq, named.batchNo, i) {
                ++calls["contest"];
            } catch {
                _convictAt(k, i);
            }
        }
    }

    /// @dev Fraud bars the only provider for good, so most of it is left to few sequences.
    function _mayConvict(uint24 seq, uint256 seed) private view returns (bool) {
        address last = lastConvicted;
        return last == address(0) || last == buyerOf[seq] || seed % 16 == 0;
    }

    function _convictAt(uint256 k, uint16 i) private {
        Named memory named = _pending[k];
        uint256 bond = _bond();
        _convict(named.seq, named.batchNo, i);
        bondGone += bond - _bond();
        lastConvicted = buyerOf[named.seq];
        ++calls["convict"];
        if (_batchAt(k).state != BatchState.SLASHED) return;
        ++calls["fraud"];
        assertTrue(book.isBarred(provider));
        _forget(k);
    }

    function contestNow(uint24 seq, uint16 batchNo, uint16 i) external {
        require(msg.sender == address(this));
        _contest(seq, batchNo, i, VerdictResult.INCOMPARABLE);
    }

    function finalize(uint256 seed) external {
        (bool found, uint256 k) = _pick(seed, BatchState.DRAWN);
        if (!found || _batchAt(k).challenged != 0) return;
        uint128 bits = uint128((seed >> 8) % 8);
        _finalize(_pending[k].seq, _pending[k].batchNo, bits, _shown(k, bits));
        _forget(k);
        ++calls["finalize"];
    }

    function _shown(uint256 k, uint128 bits) private view returns (Opening[] memory openings) {
        uint128 hidden = bits & ~_batchAt(k).settled;
        uint256 n;
        for (uint16 i; i < 3; ++i) {
            if (hidden & (1 << i) != 0) ++n;
        }
        openings = new Opening[](n);
        n = 0;
        for (uint16 i; i < 3; ++i) {
            if (hidden & (1 << i) != 0) openings[n++] = _opening(_pending[k].seq, _pending[k].batchNo, i);
        }
    }

    function giveUp(uint256 seed) external {
        (bool found, uint256 k) = _pick(seed, seed % 2 == 0 ? BatchState.COMMITTED : BatchState.DRAWN);
        if (!found || seed % 3 != 0) return;
        Named memory named = _pending[k];
        if (_batchAt(k).challenged != 0) return;
        uint256 opensAt = _batchAt(k).committedAt + HARD_CAP;
        if (block.timestamp < opensAt) vm.warp(opensAt);
        _finalizeUnverified(named.seq, named.batchNo);
        if (_batch(named.seq, named.batchNo).state == BatchState.FINAL_UNVERIFIED) _late.push(named);
        _forget(k);
        ++calls["giveUp"];
    }

    function convictLate(uint256 seed) external {
        if (_late.length == 0) return;
        Named memory named = _late[seed % _late.length];
        Batch memory batch = _batch(named.seq, named.batchNo);
        uint16 i = uint16(seed % 3);
        bool late = block.timestamp > batch.committedAt + HARD_CAP + LATE_SLASH;
        if (late || (batch.accused | batch.settled) & (1 << i) != 0 || _isSilent(batch, i)) return;
        if (batch.state == BatchState.SLASHED || !_mayConvict(named.seq, seed / 3)) return;
        uint256 bond = _bond();
        _punish(named.seq, named.batchNo, i);
        bondGone += bond - _bond();
        lastConvicted = buyerOf[named.seq];
        ++calls["convictLate"];
    }

    function theBook() external view returns (ILeaseBook) {
        return book;
    }

    // ------------------------------------------------------------------------------------------------ what must hold

    function assertSolvent() external view {
        uint256 owed = uint256(_bond()) * 1e6 + book.batched();
        address[7] memory all = [buyer, other, provider, matcher, audits[0], audits[1], stranger];
        for (uint256 i; i < all.length; ++i) {
            owed += _cash(all[i]);
        }
        uint24 newest = book.machineOf(provider, INDEX).seq;
        owed += _leaseOf(newest).cap - _leaseOf(newest).paid;
        for (uint24 seq = 1; seq <= newest; ++seq) {
            owed += uint256(_heldOf(seq).amount) + _heldOf(seq).audit;
        }
        assertEq(token.balanceOf(address(book)), owed, "I1");
        assertEq(token.balanceOf(address(module)), 0, "the module holds nothing");
    }

    function assertLocks() external view {
        (uint256 locked, uint256 money) = (0, 0);
        for (uint256 k; k < _pending.length; ++k) {
            Batch memory batch = _batchAt(k);
            locked += batch.locked;
            money += uint256(batch.left) + batch.audit;
        }
        assertEq(_locked(), locked, "I6: locks of open batches");
        assertEq(book.batched(), money, "money of open batches");
        assertGe(_bond() * 1e6, _locked(), "a lock that no bond stands behind");
        assertEq(_bond(), BOND + 400 - bondGone, "I8: the bond falls by slashes only");
    }

    /// @dev I7: a stranger ends everything; then the machine retires and the vault is emptied.
    function drain() external {
        (uint24 running,) = _running();
        skip(DURATION + CLAIM + 1);
        if (running != 0) book.expire(provider, INDEX, running);
        skip(HARD_CAP + CHALLENGE + COMMIT_WINDOW);
        while (_pending.length != 0) {
            Named memory named = _pending[0];
            for (uint16 i; i < 3; ++i) {
                if (_batchAt(0).challenged & (1 << i) != 0) _convictSilent(named, i);
            }
            // The first may be fraud; what else is accused is void then.
            for (uint16 i; i < 3; ++i) {
                if (_batchAt(0).state == BatchState.ACCUSED && _batchAt(0).accused & (1 << i) != 0) {
                    _convict(named.seq, named.batchNo, i);
                }
            }
            _finalizeUnverified(named.seq, named.batchNo);
            _forget(0);
        }
        uint24 newest = book.machineOf(provider, INDEX).seq;
        for (uint24 seq = 1; seq <= newest; ++seq) {
            if (_heldOf(seq).amount != 0) book.returnHeld(provider, INDEX, seq);
        }
        vm.startPrank(provider);
        book.retire(INDEX);
        skip(RETIRE);
        book.finishRetire(INDEX);
        vm.stopPrank();
        address[6] memory all = [buyer, other, provider, matcher, audits[0], audits[1]];
        for (uint256 i; i < all.length; ++i) {
            uint64 cash = uint64(_cash(all[i]));
            if (cash == 0) continue;
            vm.prank(all[i]);
            book.withdraw(cash);
        }
        assertEq(token.balanceOf(address(book)), 0, "I7: something is left in the vault");
    }
}
