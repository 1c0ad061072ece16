// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {SettlementLib} from "../../src/libraries/SettlementLib.sol";
import {AccountWord} from "../../src/types/AccountWord.sol";
import {HeldWord} from "../../src/types/HeldWord.sol";
import {LeaseWord} from "../../src/types/LeaseWord.sol";
import {Status} from "../../src/types/Lifecycle.sol";
import {ProductWord} from "../../src/types/ProductWord.sol";

/// @notice For every argument, not for some: run by halmos (`make prove`).
contract ArithmeticProof {
    // ---------------------------------------------------------------------------------------------- pay

    /// @dev What a lease has paid never falls, and never passes the ceiling but by what it had paid before.
    function check_paidAfter(uint48 amount, uint48 ceiling, uint48 paid) external pure {
        uint256 now_ = SettlementLib.paidAfter(amount, ceiling, paid);
        assert(now_ >= paid);
        assert(now_ <= ceiling || now_ == paid);
        assert(now_ <= amount || now_ == paid);
    }

    /// @dev Paid and refund are the cap, however the voucher reads.
    function check_paidWithinCap(uint48 cap, uint48 ceiling, uint48 amount, uint48 paid) external pure {
        if (ceiling > cap || paid > cap) return;
        uint256 now_ = SettlementLib.paidAfter(amount, ceiling, paid);
        assert(now_ >= paid && now_ <= cap); // or the sum below reverts, which proves nothing
        assert((cap - now_) + (now_ - paid) + paid == cap);
    }

    /// @dev All of the cap has accrued at the end, and nothing at the start.
    function check_accruedEnds(uint48 cap, uint32 elapsed, uint24 duration) external pure {
        if (duration == 0) return;
        assert(SettlementLib.accrued(cap, 0, duration) == 0);
        if (elapsed >= duration) assert(SettlementLib.accrued(cap, elapsed, duration) == cap);
    }

    // ---------------------------------------------------------------------------------------------- words

    function check_leaseFields(uint256 old, uint48 cap, uint48 paid, uint32 start, uint24 duration, uint24 bond)
        external
        pure
    {
        LeaseWord word = LeaseWord.wrap(old);
        LeaseWord next = word.withCap(cap).withPaid(paid).withStart(start).withDuration(duration).withBond(bond);
        assert(next.cap() == cap && next.paid() == paid && next.start() == start);
        assert(next.duration() == duration && next.bond() == bond);
        assert(next.seq() == word.seq() && next.buyerId() == word.buyerId() && next.marketId() == word.marketId());
        assert(next.flags() == word.flags());
    }

    function check_leaseFunded(
        uint256 old,
        uint48 cap,
        uint16 marketId,
        uint32 buyerId,
        uint32 deadline,
        uint24 duration,
        uint24 seq
    ) external pure {
        LeaseWord word = LeaseWord.wrap(old);
        LeaseWord next = word.funded(cap, marketId, buyerId, deadline, duration, seq, 0);
        assert(next.bond() == word.bond() && next.cap() == cap && next.paid() == 0);
        assert(next.marketId() == marketId && next.buyerId() == buyerId && next.start() == deadline);
        assert(next.duration() == duration && next.seq() == seq && next.status() == Status.Funded);
    }

    function check_leaseIdle(uint256 old) external pure {
        LeaseWord word = LeaseWord.wrap(old);
        LeaseWord next = word.idle(Status.Free);
        assert(next.bond() == word.bond() && next.seq() == word.seq() && next.isFree());
        assert(next.cap() == 0 && next.paid() == 0 && next.buyerId() == 0 && next.flags() == 0);
    }

    /// @dev Cash within its bound moves alone.
    function check_accountCash(uint256 old, uint64 amount) external pure {
        AccountWord word = AccountWord.wrap(old);
        if (word.cash() + amount < 2 ** 64) {
            AccountWord more = word.plus(amount);
            assert(more.cash() == word.cash() + amount && AccountWord.unwrap(more) >> 64 == old >> 64);
        }
        if (amount <= word.cash()) {
            AccountWord less = word.minus(amount);
            assert(less.cash() == word.cash() - amount && AccountWord.unwrap(less) >> 64 == old >> 64);
        }
    }

    /// @dev Pay held for a batch, and the audit share beside it.
    function check_heldMoney(uint256 old, uint48 more, uint56 audit) external pure {
        HeldWord word = HeldWord.wrap(old);
        if (word.amount() + more >= 2 ** 48) return;
        HeldWord next = word.plus(more).withAudit(audit);
        assert(next.amount() == word.amount() + more && next.audit() == audit);
        assert(next.buyerId() == word.buyerId() && next.seq() == word.seq());
        HeldWord taken = next.taken(audit);
        assert(taken.amount() == 0 && taken.audit() == 0 && taken.seq() == word.seq());
    }

    function check_productLocked(uint256 old, uint64 amount, uint32 retireAt) external pure {
        ProductWord word = ProductWord.wrap(old);
        ProductWord next = word.withLocked(amount).withRetireAt(retireAt);
        assert(next.locked() == amount && next.retireAt() == retireAt);
        assert(next.product() == word.product() && next.askFloor() == word.askFloor());
    }
}
