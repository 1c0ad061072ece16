// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Holdings} from "./book/Holdings.sol";
import {Ledger} from "./book/Ledger.sol";
import {PackedTrading} from "./book/PackedTrading.sol";
import {IBookPart} from "./interfaces/IBookPart.sol";
import {ILeasePacked} from "./interfaces/ILeasePacked.sol";
import {ILeaseTrading} from "./interfaces/ILeaseTrading.sol";
import {ModuleAddresses, Windows} from "./types/Rows.sol";
import {IERC20Metadata} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Metadata.sol";

/// @title LeaseBook: the immutable core of the marketplace (see {ILeaseBook})
/// @dev The everyday calls and held pay are here, the other ways to trade in {FrontOffice}, everything else in
/// {BackOffice}, both reached through the fallback: to callers all three are one contract with the functions of
/// {ILeaseBook}. No owner, no proxy admin, no upgrade: a new version is a new deployment that users join by choice.
contract LeaseBook is PackedTrading, Holdings {
    address private immutable FRONT_OFFICE;
    address private immutable BACK_OFFICE;

    /// @param token_ The payment token, at most 8 decimals, no fee on transfer.
    /// @param windows_ Time-outs, within hard maxima.
    /// @param registrationFee_ Base units burnt for a row in the tables.
    /// @param guardian_ May pause openings and deposits for a while; zero: nobody may.
    /// @param modules_ The only contracts with rights here, for good.
    /// @param commitWindow_ Seconds from a verified lease's end until its held pay returns; at most 7 days.
    /// @param front_ A {FrontOffice} made with the same arguments; whoever checks this contract's code checks its too.
    /// @param back_ A {BackOffice} likewise.
    constructor(
        IERC20Metadata token_,
        Windows memory windows_,
        uint64 registrationFee_,
        address guardian_,
        ModuleAddresses memory modules_,
        uint32 commitWindow_,
        IBookPart front_,
        IBookPart back_
    ) Ledger(token_, windows_, registrationFee_, guardian_, modules_, commitWindow_) {
        if (front_.settings() != SETTINGS) revert LeaseBook_WrongOffice(address(front_));
        if (back_.settings() != SETTINGS) revert LeaseBook_WrongOffice(address(back_));
        (FRONT_OFFICE, BACK_OFFICE) = (address(front_), address(back_));
    }

    /// @dev The targets are code of ours, fixed at construction, on the same storage layout ({Ledger}).
    fallback() external {
        address office = _isTrading(msg.sig) ? FRONT_OFFICE : BACK_OFFICE;
        assembly {
            calldatacopy(0, 0, calldatasize())
            let ok := delegatecall(gas(), office, 0, calldatasize(), 0, 0)
            returndatacopy(0, 0, returndatasize())
            switch ok
            case 0 { revert(0, returndatasize()) }
            default { return(0, returndatasize()) }
        }
    }

    function _isTrading(bytes4 selector) private pure returns (bool) {
        return selector == ILeaseTrading.settleBatch.selector || selector == ILeaseTrading.begin.selector
            || selector == ILeaseTrading.openBatch.selector || selector == ILeaseTrading.closeBatch.selector
            || selector == ILeaseTrading.postReady.selector || selector == ILeaseTrading.openGang.selector
            || selector == ILeaseTrading.openMatch.selector;
    }

    /// @inheritdoc ILeasePacked
    function DOMAIN_SEPARATOR() external view returns (bytes32) {
        return _domainSeparatorV4();
    }
}
