// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @notice What is said against a batch's segments, in one slot; zero in most. From the lowest bit: accused 100,
/// settled 100, returned 20, until 32. Bit i is segment i.
/// @dev Settled: contested or convicted. `returned` is the weight whose price went back to the buyer. There is one
/// window: each accusation restarts it for all, so that none needs a slot of its own.
type DisputeWord is uint256;

/// @notice Which drawn points a verifier asked to see, in one slot; zero in most. From the lowest bit: low 100,
/// high 100, points 7, until 32. Bit j is point j; low alone: open; high alone: answered; both: silent.
/// @dev One window, as above.
type ChallengeWord is uint256;

using DisputeWordLibrary for DisputeWord global;
using ChallengeWordLibrary for ChallengeWord global;

uint256 constant BITS = 0xfffffffffffffffffffffffff; // 100

library DisputeWordLibrary {
    uint256 private constant SETTLED = 100;
    uint256 private constant RETURNED = 200;
    uint256 private constant UNTIL = 220;
    uint256 private constant U20 = 0xfffff;

    function accused(DisputeWord w) internal pure returns (uint256) {
        return DisputeWord.unwrap(w) & BITS;
    }

    function settled(DisputeWord w) internal pure returns (uint256) {
        return (DisputeWord.unwrap(w) >> SETTLED) & BITS;
    }

    function returned(DisputeWord w) internal pure returns (uint256) {
        return (DisputeWord.unwrap(w) >> RETURNED) & U20;
    }

    function until(DisputeWord w) internal pure returns (uint256) {
        return uint32(DisputeWord.unwrap(w) >> UNTIL);
    }

    function withAccused(DisputeWord w, uint256 i, uint256 until_) internal pure returns (DisputeWord) {
        uint256 word = DisputeWord.unwrap(w) & ~(uint256(type(uint32).max) << UNTIL);
        return DisputeWord.wrap(word | (1 << i) | (until_ << UNTIL));
    }

    /// @dev From accused to settled.
    function withSettled(DisputeWord w, uint256 i) internal pure returns (DisputeWord) {
        return DisputeWord.wrap((DisputeWord.unwrap(w) & ~(uint256(1) << i)) | (1 << (SETTLED + i)));
    }

    /// @dev `weight` is the new sum, at most 10^6.
    function withReturned(DisputeWord w, uint256 weight) internal pure returns (DisputeWord) {
        return DisputeWord.wrap((DisputeWord.unwrap(w) & ~(U20 << RETURNED)) | (weight << RETURNED));
    }
}

library ChallengeWordLibrary {
    uint256 private constant HIGH = 100;
    uint256 private constant POINTS = 200;
    uint256 private constant UNTIL = 207;
    uint256 private constant U7 = 0x7f;

    function open(ChallengeWord w) internal pure returns (uint256) {
        return _low(w) & ~_high(w);
    }

    function silent(ChallengeWord w) internal pure returns (uint256) {
        return _low(w) & _high(w);
    }

    function asked(ChallengeWord w) internal pure returns (uint256) {
        return _low(w) | _high(w);
    }

    /// @dev Of how many points the verifier asks; 0: nothing was asked yet.
    function points(ChallengeWord w) internal pure returns (uint256) {
        return (ChallengeWord.unwrap(w) >> POINTS) & U7;
    }

    function until(ChallengeWord w) internal pure returns (uint256) {
        return uint32(ChallengeWord.unwrap(w) >> UNTIL);
    }

    function withAsked(ChallengeWord w, uint256 j, uint256 points_, uint256 until_)
        internal
        pure
        returns (ChallengeWord)
    {
        uint256 bits = ChallengeWord.unwrap(w) & ((1 << POINTS) - 1);
        return ChallengeWord.wrap(bits | (1 << j) | (points_ << POINTS) | (until_ << UNTIL));
    }

    function withAnswered(ChallengeWord w, uint256 j) internal pure returns (ChallengeWord) {
        return ChallengeWord.wrap((ChallengeWord.unwrap(w) & ~(uint256(1) << j)) | (1 << (HIGH + j)));
    }

    function withSilent(ChallengeWord w, uint256 j) internal pure returns (ChallengeWord) {
        return ChallengeWord.wrap(ChallengeWord.unwrap(w) | (1 << (HIGH + j)));
    }

    function _low(ChallengeWord w) private pure returns (uint256) {
        return ChallengeWord.unwrap(w) & BITS;
    }

    function _high(ChallengeWord w) private pure returns (uint256) {
        return (ChallengeWord.unwrap(w) >> HIGH) & BITS;
    }
}
