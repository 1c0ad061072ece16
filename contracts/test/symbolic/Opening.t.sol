// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {VERIFIED} from "../../src/types/Flags.sol";
import {LeaseWord} from "../../src/types/LeaseWord.sol";
import {Status} from "../../src/types/Lifecycle.sol";
import {AnyBook} from "./AnyBook.sol";

/// @notice I1 of {ILeasePacked.openPacked}, for one entry of any two orders and signatures, good or bad, that asks for
/// no verified results: see {AnyBook} for what is any, what is fixed and what is assumed. The cap is any number that a
/// price, a count and a duration may give: no solver here divides 256 bits.
contract OpeningProof is AnyBook {
    /// @dev All but provider, machine and buyer of a match.
    struct Orders {
        uint64 least;
        uint32 nonce;
        uint64 most;
        uint256 terms;
        bytes32 document;
        bytes32[4] signatures;
    }

    /// @dev Either a lease is funded with what its buyer's cash fell by, or nothing changed.
    function check_openPacked(Words memory words, Orders memory orders, uint64 price) external {
        Seen memory a = _lookAt(words, Status.Free, 0);
        vm.assume(orders.terms & VERIFIED == 0);
        book.openPacked(PRODUCT, price, MARKET_ID, _packed(orders));
        Seen memory b = _see();
        assert(b.provider == a.provider && b.market == a.market && b.counts == a.counts);
        assert(b.lease.bond() == a.lease.bond() && b.held.amount() == a.held.amount());
        if (b.lease.isFree()) {
            assert(b.buyer == a.buyer && LeaseWord.unwrap(b.lease) == LeaseWord.unwrap(a.lease));
        } else {
            assert(b.lease.status() == Status.Funded && b.lease.paid() == 0 && b.lease.cap() != 0);
            assert(uint64(b.buyer) + b.lease.cap() == uint64(a.buyer));
        }
    }

    function _packed(Orders memory orders) private pure returns (bytes memory) {
        bytes memory heads = abi.encodePacked(PROVIDER, INDEX, orders.least, BUYER, orders.nonce, orders.most);
        bytes32[4] memory s = orders.signatures;
        return bytes.concat(heads, bytes32(orders.terms), orders.document, s[0], s[1], s[2], s[3]);
    }
}
