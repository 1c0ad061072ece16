// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {OrderHash} from "../../src/libraries/OrderHash.sol";
import {VERIFIED} from "../../src/types/Flags.sol";
import {Status} from "../../src/types/Lifecycle.sol";
import {Accept, Ready, Voucher} from "../../src/types/Orders.sol";
import {AnyBook} from "./AnyBook.sol";

/// @notice I1 of beginning and settling: see {AnyBook} for what is any, what is fixed and what is assumed.
contract TradingProof is AnyBook {
    /// @dev Who signed both is the same, which is anybody.
    function check_begin(Words memory words, uint32 startedAt, bytes32 r, bytes32 s, uint8 v) external {
        Seen memory seen = _look(words, Status.Funded, SEQ);
        bytes memory signature = abi.encodePacked(r, s, v);
        Accept memory accepted = Accept(PROVIDER, INDEX, SEQ, startedAt);
        book.begin(Ready(PROVIDER, INDEX, SEQ, r), signature, accepted, signature);
        _assertConserved(seen, Status.Active);
    }

    function check_settle(Words memory words, uint48 amount, bytes32 r, bytes32 vs) external {
        _settle(words, Status.Active, 0, Voucher(PROVIDER, INDEX, SEQ, amount), r, vs);
    }

    function check_settleVerified(Words memory words, uint48 amount, bytes32 r, bytes32 vs) external {
        _settle(words, Status.Active, VERIFIED, Voucher(PROVIDER, INDEX, SEQ, amount), r, vs);
    }

    function check_settleStopped(Words memory words, uint48 amount, bytes32 r, bytes32 vs) external {
        _settle(words, Status.Stopped, 0, Voucher(PROVIDER, INDEX, SEQ, amount), r, vs);
    }

    /// @dev The buyer signed.
    function _settle(Words memory words, Status status, uint8 flags, Voucher memory voucher, bytes32 r, bytes32 vs)
        private
    {
        Seen memory seen = _lookAt(words, status, flags);
        _assumeSigned(OrderHash.hash(voucher, OrderHash.VOUCHER), r, vs);
        (Voucher[] memory vouchers, bytes[] memory signatures) = (new Voucher[](1), new bytes[](1));
        (vouchers[0], signatures[0]) = (voucher, abi.encodePacked(r, vs));
        book.settleBatch(vouchers, signatures);
        _assertConserved(seen, status);
    }
}
