// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

// One bit means one thing in every flags field, so that an ask, a bid, a product and a lease compare bit by bit.

/// @dev Ask: the provider may leave after the product's notice. Bid: such machines are accepted.
uint8 constant INTERRUPTIBLE = 1;
/// @dev Pay is held until results were audited.
uint8 constant VERIFIED = 2;
/// @dev Bid only: pay the ask's own price, whatever the call's price.
uint8 constant PAY_AS_ASK = 4;
/// @dev Product only: a hardware challenge runs between Ready and Accept.
uint8 constant CHALLENGE = 4;
/// @dev Lease only: the provider posted its Ready.
uint8 constant READY = 4;
/// @dev Lease only: margins of a futures contract stand behind it.
uint8 constant FIRM = 8;
