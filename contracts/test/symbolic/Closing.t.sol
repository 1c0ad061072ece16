// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {OrderHash} from "../../src/libraries/OrderHash.sol";
import {SettlementLib} from "../../src/libraries/SettlementLib.sol";
import {Status} from "../../src/types/Lifecycle.sol";
import {Voucher} from "../../src/types/Orders.sol";
import {AnyBook} from "./AnyBook.sol";

/// @notice I1 of {ILeasePacked.closePacked}, for a stopped lease that is neither verified nor firm: see {AnyBook} for
/// what is any, what is fixed and what is assumed. Besides: the buyer itself signed, all of the cap has accrued (as it
/// has when {LeaseWord.duration} ends at the stop), and a fee is at most what it is taken of (fuzzed: no solver here divides 256 bits).
contract ClosingProof is AnyBook {
    /// @dev A voucher of the whole cap or more, sent by anybody.
    function check_closePackedWhole(Words memory words, uint48 amount, bytes32 r, bytes32 vs) external {
        Seen memory seen = _ended(words);
        Voucher memory voucher = Voucher(PROVIDER, INDEX, SEQ, amount);
        vm.assume(amount >= seen.lease.cap());
        _assumeFee(seen.lease.cap() - seen.lease.paid(), words.feeBps);
        _assumeSigned(OrderHash.hash(voucher, OrderHash.VOUCHER), r, vs);
        book.closePacked(_packed(voucher, r, vs), false);
        _assertConserved(seen, Status.Free);
    }

    /// @dev Any voucher, sent by the provider, which stands for its Final: what each account gets sums up to what was
    /// unpaid, `(paid - before - fee) + fee + (cap - paid)`.
    function check_closePackedAgreed(Words memory words, uint48 amount, bytes32 r, bytes32 vs) external {
        Seen memory seen = _ended(words);
        Voucher memory voucher = Voucher(PROVIDER, INDEX, SEQ, amount);
        uint256 cap = seen.lease.cap();
        uint256 paid = SettlementLib.paidAfter(amount, cap, seen.lease.paid());
        uint256 due = paid - seen.lease.paid();
        uint256 fee = _assumeFee(due, words.feeBps);
        _assumeSigned(OrderHash.hash(voucher, OrderHash.VOUCHER), r, vs);
        vm.prank(PROVIDER);
        book.closePacked(_packed(voucher, r, vs), false);
        Seen memory b = _see();
        assert(b.lease.isFree() && paid <= cap);
        assert(b.provider == seen.provider + (due - fee));
        assert(b.market == seen.market + fee);
        assert(b.buyer == seen.buyer + (cap - paid));
    }

    function _ended(Words memory words) private returns (Seen memory seen) {
        seen = _lookAt(words, Status.Stopped, 0);
        vm.assume(words.time - seen.lease.start() >= seen.lease.duration());
    }

    function _assumeFee(uint256 amount, uint256 feeBps) private pure returns (uint256 fee) {
        fee = SettlementLib.shareDown(amount, feeBps);
        vm.assume(fee <= amount);
    }

    function _packed(Voucher memory voucher, bytes32 r, bytes32 vs) private pure returns (bytes memory) {
        return abi.encodePacked(voucher.provider, voucher.index, voucher.seq, voucher.amount, r, vs);
    }
}
