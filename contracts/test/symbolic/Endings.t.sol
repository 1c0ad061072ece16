// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {READY} from "../../src/types/Flags.sol";
import {CloseReason, Status} from "../../src/types/Lifecycle.sol";
import {Voucher} from "../../src/types/Orders.sol";
import {AnyBook} from "./AnyBook.sol";

/// @notice I1 of the ends that one side takes: see {AnyBook} for what is any, what is fixed and what is assumed.
contract EndingsProof is AnyBook {
    function check_stop(Words memory words) external {
        Seen memory seen = _look(words, Status.Active, SEQ);
        vm.prank(BUYER);
        book.stop(PROVIDER, INDEX, SEQ);
        _assertConserved(seen, Status.Stopped);
    }

    /// @dev The provider's no-show: its Ready is not posted.
    function check_refundUnstarted(Words memory words) external {
        Seen memory seen = _lookAt(words, Status.Funded, 0);
        book.refundUnstarted(PROVIDER, INDEX, SEQ);
        _assertConservedWithBond(seen, Status.Free);
    }

    /// @dev The buyer's.
    function check_refundUnstartedReady(Words memory words) external {
        Seen memory seen = _lookAt(words, Status.Funded, READY);
        book.refundUnstarted(PROVIDER, INDEX, SEQ);
        _assertConserved(seen, Status.Free);
    }

    function check_expire(Words memory words) external {
        Seen memory seen = _look(words, Status.Active, SEQ);
        book.expire(PROVIDER, INDEX, SEQ);
        _assertConserved(seen, Status.Free);
    }

    function check_expireStopped(Words memory words) external {
        Seen memory seen = _look(words, Status.Stopped, SEQ);
        book.expire(PROVIDER, INDEX, SEQ);
        _assertConserved(seen, Status.Free);
    }

    function check_releaseUnstarted(Words memory words) external {
        Seen memory seen = _lookAt(words, Status.Funded, 0);
        _release();
        _assertConservedWithBond(seen, Status.Free);
    }

    function check_release(Words memory words) external {
        Seen memory seen = _lookAt(words, Status.Active, 0);
        _release();
        _assertConservedWithBond(seen, Status.Free);
    }

    function check_releaseStopped(Words memory words) external {
        Seen memory seen = _look(words, Status.Stopped, SEQ);
        _release();
        _assertConserved(seen, Status.Free);
    }

    /// @dev Without a voucher: what one pays is {TradingProof.check_settle}'s.
    function _release() private {
        vm.prank(PROVIDER);
        book.release(Voucher(PROVIDER, INDEX, SEQ, 0), "", CloseReason.RELEASED);
    }
}
