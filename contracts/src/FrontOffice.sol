// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Ledger} from "./book/Ledger.sol";
import {Matches} from "./book/Matches.sol";
import {Payments} from "./book/Payments.sol";
import {Starts} from "./book/Starts.sol";
import {ModuleAddresses, Windows} from "./types/Rows.sol";
import {IERC20Metadata} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Metadata.sol";

/// @title FrontOffice: the part of LeaseBook that trades by the ABI ({ILeaseTrading})
/// @dev Deployed first and run by {LeaseBook} on its own storage, like {BackOffice}.
contract FrontOffice is Matches, Starts, Payments {
    constructor(
        IERC20Metadata token_,
        Windows memory windows_,
        uint64 registrationFee_,
        address guardian_,
        ModuleAddresses memory modules_,
        uint32 commitWindow_
    ) Ledger(token_, windows_, registrationFee_, guardian_, modules_, commitWindow_) {}
}
