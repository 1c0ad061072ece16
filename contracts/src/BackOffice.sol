// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Endings} from "./book/Endings.sol";
import {Ledger} from "./book/Ledger.sol";
import {Modules} from "./book/Modules.sol";
import {ILeaseOffice} from "./interfaces/ILeaseOffice.sol";
import {AccountWord} from "./types/AccountWord.sol";
import {LeaseWord} from "./types/LeaseWord.sol";
import {Status} from "./types/Lifecycle.sol";
import {MachineKey, machineKeyOf} from "./types/MachineKey.sol";
import {ProductWord} from "./types/ProductWord.sol";
import {Account, Delegate, Lease, Machine, Market, ModuleAddresses, Product, Windows} from "./types/Rows.sol";
import {IERC20Metadata} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Metadata.sol";

/// @title BackOffice: the part of LeaseBook that is seldom called, and its views
/// @dev Code has a size limit (EIP-170, and EIP-3860 for what creates it), so this contract is deployed first, and
/// {LeaseBook} runs it on its own storage by delegatecall. It is as fixed as the rest: one address, given at
/// construction. Called directly, it is an empty book of its own in which nothing can be opened.
contract BackOffice is Endings, Modules {
    constructor(
        IERC20Metadata token_,
        Windows memory windows_,
        uint64 registrationFee_,
        address guardian_,
        ModuleAddresses memory modules_,
        uint32 commitWindow_
    ) Ledger(token_, windows_, registrationFee_, guardian_, modules_, commitWindow_) {}

    /// @inheritdoc ILeaseOffice
    function accountOf(address account) external view returns (Account memory) {
        AccountWord word = _accounts[account];
        return
            Account({
                cash: uint64(word.cash()), id: word.id(), nonceBase: word.nonceBase(), nonceBits: word.nonceBits()
            });
    }

    /// @inheritdoc ILeaseOffice
    function addressOf(uint32 id) external view returns (address) {
        return _addressOf[id];
    }

    /// @inheritdoc ILeaseOffice
    function delegateOf(address signer) external view returns (Delegate memory) {
        return _delegates[signer];
    }

    /// @inheritdoc ILeaseOffice
    function machineOf(address provider, uint32 index) external view returns (Machine memory) {
        MachineKey key = machineKeyOf(provider, index);
        (LeaseWord word, ProductWord machine) = (_leases[key], _machines[key]);
        return Machine({
            status: word.status(),
            product: machine.product(),
            seq: word.seq(),
            nextSeq: uint32(_nextSeq(word, machine)),
            bond: uint24(word.bond()),
            locked: uint64(machine.locked()),
            retireAt: machine.retireAt()
        });
    }

    /// @inheritdoc ILeaseOffice
    function leaseOf(address provider, uint32 index, uint24 seq) external view returns (Lease memory lease) {
        MachineKey key = machineKeyOf(provider, index);
        LeaseWord word = _leases[key];
        bool funded = word.status() == Status.Funded;
        if (word.seq() != seq || !(funded || word.isRunning())) return lease;
        return Lease({
            status: word.status(),
            buyer: _addressOf[word.buyerId()],
            cap: uint48(word.cap()),
            paid: uint48(word.paid()),
            ceiling: funded ? 0 : uint48(_ceiling(word)),
            marketId: word.marketId(),
            start: uint32(word.start()),
            duration: uint24(word.duration()),
            flags: word.flags(),
            noticeAt: _machines[key].noticeAt(seq)
        });
    }

    /// @inheritdoc ILeaseOffice
    function productOf(uint32 id) external view returns (Product memory) {
        return _products[id];
    }

    /// @inheritdoc ILeaseOffice
    function marketOf(uint16 id) external view returns (Market memory) {
        return _markets[id];
    }

    /// @inheritdoc ILeaseOffice
    function counts() external view returns (uint32 accounts, uint32 products, uint16 markets) {
        return (_accountCount, _productCount, _marketCount);
    }

    /// @inheritdoc ILeaseOffice
    function windows() external view returns (Windows memory) {
        return Windows({
            start: uint32(START_WINDOW),
            claim: uint32(CLAIM_WINDOW),
            retire: uint32(RETIRE_DELAY),
            noShow: uint32(NO_SHOW)
        });
    }

    /// @inheritdoc ILeaseOffice
    function token() external view returns (address) {
        return address(TOKEN);
    }

    /// @inheritdoc ILeaseOffice
    function bondUnit() external view returns (uint256) {
        return BOND_UNIT;
    }

    /// @inheritdoc ILeaseOffice
    function registrationFee() external view returns (uint64) {
        return REGISTRATION_FEE;
    }

    /// @inheritdoc ILeaseOffice
    function guardian() external view returns (address) {
        return GUARDIAN;
    }

    /// @inheritdoc ILeaseOffice
    function pausedUntil() external view returns (uint32) {
        return _pausedUntil;
    }
}
