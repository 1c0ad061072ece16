// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Batch, BatchState} from "../../../src/types/Audits.sol";
import {Status} from "../../../src/types/Lifecycle.sol";
import {Lease} from "../../../src/types/Rows.sol";
import {AuditFixture} from "../../unit/verification/AuditFixture.sol";

/// @dev What the handler of verified leases remembers, and how it finds something to act on.
abstract contract AuditWorld is AuditFixture {
    struct Named {
        uint24 seq;
        uint16 batchNo;
    }

    address internal other;
    Named[] internal _pending;
    Named[] internal _late;
    mapping(string call => uint256) public calls;
    mapping(uint24 seq => address) internal buyerOf;
    address internal lastConvicted;
    /// Whole units of the bond that slashes took.
    uint256 public bondGone;

    function _running() internal view returns (uint24 seq, Lease memory lease) {
        seq = book.machineOf(provider, INDEX).seq;
        lease = _leaseOf(seq);
        if (lease.status != Status.Active) seq = 0;
    }

    function _pickChallenged(uint256 seed) internal view returns (bool, uint256 k) {
        for (uint256 step; step < _pending.length; ++step) {
            k = (seed % _pending.length + step) % _pending.length;
            if (_batchAt(k).challenged != 0) return (true, k);
        }
        return (false, 0);
    }

    function _isSilent(Batch memory batch, uint16 i) internal view returns (bool) {
        for (uint16 j; j < 3; ++j) {
            if (batch.silent & (1 << j) != 0 && _segmentAt(batch.seed, j) == i) return true;
        }
        return false;
    }

    function _heldSeq(uint256 seed) internal view returns (uint24) {
        uint24 newest = book.machineOf(provider, INDEX).seq;
        for (uint256 step; step < 8; ++step) {
            uint24 back = uint24((seed % 8 + step) % 8);
            if (back >= newest) continue;
            if (_heldOf(newest - back).amount != 0) return newest - back;
        }
        return 0;
    }

    function _pick(uint256 seed, BatchState state) internal view returns (bool, uint256 k) {
        for (uint256 step; step < _pending.length; ++step) {
            k = (seed % _pending.length + step) % _pending.length;
            if (_batchAt(k).state == state) return (true, k);
        }
        return (false, 0);
    }

    function _batchAt(uint256 k) internal view returns (Batch memory) {
        return _batch(_pending[k].seq, _pending[k].batchNo);
    }

    function _forget(uint256 k) internal {
        _pending[k] = _pending[_pending.length - 1];
        _pending.pop();
    }
}
