// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @title MarginLib: the arithmetic of futures, equal to `cloud_gpu/protocol/futures.py`
/// @dev The only place where margins are rounded. A margin rounds up, a part and a forfeit down: what does not divide
/// stays with the side that was debited. Bounds: prices below 2^64, GPUs and units below 2^16, windows below 2^24,
/// shares at most 10,000, amounts below 2^64: no product reaches 2^160.
library MarginLib {
    uint256 private constant HOUR = 3600;
    uint256 private constant ONE = 10_000;

    /// @return max(floor, ceil(price * gpus * units * window / 3600 * bps / 10,000)), base units.
    function margin(uint256 price, uint256 gpus, uint256 units, uint256 window, uint256 bps, uint256 floor)
        internal
        pure
        returns (uint256)
    {
        unchecked {
            uint256 share = (price * gpus * units * window * bps + (HOUR * ONE - 1)) / (HOUR * ONE);
            return share > floor ? share : floor;
        }
    }

    /// @return floor(amount / units): what stands behind one unit.
    function part(uint256 amount, uint256 units) internal pure returns (uint256) {
        return amount / units;
    }

    /// @return floor(amount * left / window): what the side that broke a unit's lease loses of its part.
    function forfeit(uint256 amount, uint256 left, uint256 window) internal pure returns (uint256) {
        unchecked {
            return left < window ? amount * left / window : amount;
        }
    }
}
