// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Holdings} from "./book/Holdings.sol";
import {Ledger} from "./book/Ledger.sol";
import {Matches} from "./book/Matches.sol";
import {PackedTrading} from "./book/PackedTrading.sol";
import {Payments} from "./book/Payments.sol";
import {Starts} from "./book/Starts.sol";
import {ILeaseOffice} from "./interfaces/ILeaseOffice.sol";
import {ILeaseTrading} from "./interfaces/ILeaseTrading.sol";
import {ModuleAddresses, Windows} from "./types/Rows.sol";
import {IERC20Metadata} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Metadata.sol";

/// @title LeaseBook: the immutable core of the marketplace (see {ILeaseBook})
/// @dev Trading and held pay are here, everything else in {BackOffice}, reached through the fallback: to callers both are one
/// contract with the functions of {ILeaseBook}. No owner, no proxy admin, no upgrade: a new version is a new
/// deployment that users join by choice.
contract LeaseBook is Matches, PackedTrading, Starts, Payments, Holdings {
    address private immutable BACK_OFFICE;

    /// @param token_ The payment token, at most 8 decimals, no fee on transfer.
    /// @param windows_ Time-outs, within hard maxima.
    /// @param registrationFee_ Base units burnt for a row in the tables.
    /// @param guardian_ May pause openings and deposits for a while; zero: nobody may.
    /// @param modules_ The only contracts with rights here, for good.
    /// @param commitWindow_ Seconds from a verified lease's end until its held pay returns; at most 7 days.
    /// @param office_ A {BackOffice} made with the same arguments; whoever checks this contract's code checks its too.
    constructor(
        IERC20Metadata token_,
        Windows memory windows_,
        uint64 registrationFee_,
        address guardian_,
        ModuleAddresses memory modules_,
        uint32 commitWindow_,
        ILeaseOffice office_
    ) Ledger(token_, windows_, registrationFee_, guardian_, modules_, commitWindow_) {
        if (office_.settings() != SETTINGS) revert LeaseBook_WrongOffice(address(office_));
        BACK_OFFICE = address(office_);
    }

    /// @dev The target is code of ours, fixed at construction, on the same storage layout ({Ledger}).
    fallback() external {
        address office = BACK_OFFICE;
        assembly {
            calldatacopy(0, 0, calldatasize())
            let ok := delegatecall(gas(), office, 0, calldatasize(), 0, 0)
            returndatacopy(0, 0, returndatasize())
            switch ok
            case 0 { revert(0, returndatasize()) }
            default { return(0, returndatasize()) }
        }
    }

    /// @inheritdoc ILeaseTrading
    function DOMAIN_SEPARATOR() external view returns (bytes32) {
        return _domainSeparatorV4();
    }
}
