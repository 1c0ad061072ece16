// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title SettlementLib: the arithmetic of an ending, equal to `cloud_gpu/protocol/settlement.py`
/// @dev What is locked, accrued or paid rounds down; penalties alone round up. Bounds that make `unchecked` safe:
/// amounts of a lease below 2^48, durations and windows below 2^32, shares below 2^16, prices below 2^64, counts below
/// 2^16: no product reaches 2^128.
library SettlementLib {
    uint256 internal constant HOUR = 3600;
    uint256 internal constant ONE = 10_000;

    /// @return floor(price * gpus * duration / 3600).
    function costDown(uint256 price, uint256 gpus, uint256 duration) internal pure returns (uint256) {
        unchecked {
            return price * gpus * duration / HOUR;
        }
    }

    /// @return The ceiling of pay: floor(cap * min(elapsed, duration) / duration).
    function accrued(uint256 cap, uint256 elapsed, uint256 duration) internal pure returns (uint256) {
        unchecked {
            return elapsed < duration ? cap * elapsed / duration : cap;
        }
    }

    /// @return What the lease has paid once a voucher of `amount` is in: min(amount, ceiling), never below `paid`.
    function paidAfter(uint256 amount, uint256 ceiling, uint256 paid) internal pure returns (uint256) {
        uint256 due = amount < ceiling ? amount : ceiling;
        return due > paid ? due : paid;
    }

    /// @return floor(amount * bps / 10,000).
    function shareDown(uint256 amount, uint256 bps) internal pure returns (uint256) {
        unchecked {
            return amount * bps / ONE;
        }
    }

    /// @return ceil(amount * bps / 10,000).
    function shareUp(uint256 amount, uint256 bps) internal pure returns (uint256) {
        unchecked {
            return (amount * bps + (ONE - 1)) / ONE;
        }
    }

    /// @return min(cap, `window` seconds of price, rounded up): what a side that failed to show up owes.
    function noShow(uint256 cap, uint256 duration, uint256 window) internal pure returns (uint256) {
        unchecked {
            return window < duration ? (cap * window + (duration - 1)) / duration : cap;
        }
    }
}
