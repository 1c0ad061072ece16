// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBook} from "../../src/interfaces/ILeaseBook.sol";
import {IERC1271} from "@openzeppelin/contracts/interfaces/IERC1271.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";

/// @dev A contract account; `mood` says how it answers when asked for its signature.
contract Wallet is IERC1271 {
    enum Mood {
        Honest,
        BurnsGas,
        ReturnsTooMuch,
        Reverts,
        SaysYesToAll,
        ReturnsNothing,
        ReturnsHalfAWord
    }

    address private immutable OWNER;
    Mood public mood;
    uint256 private _sink;

    constructor(address owner_, Mood mood_) {
        (OWNER, mood) = (owner_, mood_);
    }

    function changeMood(Mood mood_) external {
        mood = mood_;
    }

    function join(ILeaseBook book, uint64 amount) external {
        IERC20(book.token()).approve(address(book), type(uint256).max);
        book.register();
        book.deposit(address(this), amount);
    }

    function run(address target, bytes calldata call_) external {
        require(msg.sender == OWNER, "not the owner");
        (bool ok, bytes memory answer) = target.call(call_);
        if (!ok) {
            assembly ("memory-safe") {
                revert(add(answer, 0x20), mload(answer))
            }
        }
    }

    function isValidSignature(bytes32 digest, bytes calldata signature) external view returns (bytes4) {
        if (mood == Mood.BurnsGas) {
            while (true) digest = keccak256(abi.encode(digest));
        } else if (mood == Mood.ReturnsTooMuch) {
            assembly {
                return(0, 1000000)
            }
        } else if (mood == Mood.Reverts) {
            revert("no");
        } else if (mood == Mood.ReturnsNothing) {
            assembly {
                return(0, 0)
            }
        } else if (mood == Mood.ReturnsHalfAWord) {
            bytes4 yes = IERC1271.isValidSignature.selector;
            assembly {
                mstore(0, yes)
                return(0, 16)
            }
        } else if (mood == Mood.SaysYesToAll) {
            return IERC1271.isValidSignature.selector;
        }
        (address signer,,) = ECDSA.tryRecover(digest, signature);
        return signer == OWNER ? IERC1271.isValidSignature.selector : bytes4(0);
    }
}
