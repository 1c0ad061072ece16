// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/ERC20Permit.sol";

/// @title PaymentToken: play money of a development network
/// @notice Anyone may mint. Never deploy it where its balance is meant to be worth something.
contract PaymentToken is ERC20, ERC20Permit {
    /// @notice The supply would exceed what LeaseBook's 64-bit accounts can count.
    error PaymentToken_SupplyTooHigh(uint256 supply);

    constructor() ERC20("Devnet Dollar", "DUSD") ERC20Permit("Devnet Dollar") {}

    /// @notice Creates `amount` base units out of nothing for `to`.
    function mint(address to, uint256 amount) external {
        _mint(to, amount);
        if (totalSupply() > type(uint64).max) revert PaymentToken_SupplyTooHigh(totalSupply());
    }

    function decimals() public pure override returns (uint8) {
        return 6;
    }
}
