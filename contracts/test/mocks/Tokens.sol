// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBook} from "../../src/interfaces/ILeaseBook.sol";
import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";

/// @dev A token of any number of decimals.
contract PlainToken is ERC20 {
    uint8 private immutable DECIMALS;

    constructor(uint8 decimals_) ERC20("Plain", "PLN") {
        DECIMALS = decimals_;
    }

    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }

    function decimals() public view override returns (uint8) {
        return DECIMALS;
    }
}

/// @dev Keeps 1 % of each transfer.
contract FeeToken is PlainToken(6) {
    function _update(address from, address to, uint256 amount) internal override {
        if (from != address(0) && to != address(0)) {
            super._update(from, address(0xfee), amount / 100);
            amount -= amount / 100;
        }
        super._update(from, to, amount);
    }
}

/// @dev Calls back into the book, as an account of its own, whenever the book moves tokens.
contract ReentrantToken is PlainToken(6) {
    ILeaseBook private _book;
    bytes private _call;
    bool public reached;
    bytes public answer;

    function join(ILeaseBook book, uint64 amount) external {
        book.register();
        _mint(address(this), amount);
        _approve(address(this), address(book), type(uint256).max);
        book.deposit(address(this), amount);
    }

    function arm(ILeaseBook book, bytes calldata call_) external {
        (_book, _call) = (book, call_);
    }

    function _update(address from, address to, uint256 amount) internal override {
        super._update(from, to, amount);
        if (address(_book) != address(0) && (from == address(_book) || to == address(_book))) {
            ILeaseBook book = _book;
            _book = ILeaseBook(address(0));
            (reached, answer) = address(book).call(_call);
        }
    }
}
