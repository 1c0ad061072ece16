// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Role} from "../../src/types/Lifecycle.sol";
import {Accept, Ask, Bid, Ready, SignedMatch, Voucher} from "../../src/types/Orders.sol";
import {Packing} from "../Packing.sol";

/// @dev Gas of a lease's life per lease, each call its own transaction (calldata and base fee included), in the
/// steady state: every machine and account has had a lease before. Written to snapshots/, so that a change shows.
/// forge-config: default.isolate = true
contract Gas is Packing {
    uint256 private constant PROVIDERS = 50;

    struct Party {
        address wallet;
        address key;
    }

    /// @dev Who trades, who signs, and by which entry points. `providers` times a number of machines make `n`.
    struct Mix {
        string name;
        uint256 n;
        uint256 providers;
        uint256 buyers;
        bool keys;
        bool packed;
    }

    Party[] private _providers;
    Party[] private _buyers;

    function setUp() public override {
        super.setUp();
        for (uint256 i; i < PROVIDERS; ++i) {
            _providers.push(_party("provider", i, Role.Node));
            _buyers.push(_party("buyer", i, Role.Session));
            for (uint32 index = 1; index <= (i < 10 ? 5 : 1); ++index) {
                vm.prank(_providers[i].wallet);
                book.addMachine(index, 50, product);
            }
        }
    }

    function _party(string memory name, uint256 i, Role role) private returns (Party memory party) {
        party.wallet = _member(string.concat(name, vm.toString(i)));
        party.key = _signer(string.concat(name, vm.toString(i), " key"));
        _delegate(party.wallet, party.key, role, uint32(block.timestamp + 90 days));
    }

    function test_gas_whenWalletsSign() external {
        _measure("wallets", false, false);
    }

    function test_gas_whenKeysSign() external {
        _measure("keys", true, false);
    }

    function test_gas_whenWalletsSign_packed() external {
        _measure("packed wallets", false, true);
    }

    function test_gas_whenKeysSign_packed() external {
        _measure("packed keys", true, true);
    }

    function _measure(string memory name, bool keys, bool packed) private {
        _live(Mix({name: name, n: 1, providers: 50, buyers: 50, keys: keys, packed: packed}));
        _live(Mix({name: name, n: 10, providers: 50, buyers: 50, keys: keys, packed: packed}));
        _live(Mix({name: name, n: 50, providers: 50, buyers: 50, keys: keys, packed: packed}));
        name = string.concat(name, " 5x10");
        _live(Mix({name: name, n: 50, providers: 10, buyers: 5, keys: keys, packed: packed}));
    }

    /// @dev One round unmeasured, so that no slot is new, then the measured one.
    function _live(Mix memory mix) private {
        for (uint256 round; round < 2; ++round) {
            bool measured = round == 1;
            _open(mix, measured);
            _begin(mix, measured);
            skip(1 hours);
            _pay(mix, measured, CAP / 10, false);
            skip(DURATION);
            _pay(mix, measured, CAP / 2, true);
        }
    }

    function _record(Mix memory mix, bool measured, string memory step, uint256 n) private {
        if (!measured) return;
        string memory label = string.concat(mix.name, " n=", vm.toString(mix.n), " ", step);
        vm.snapshotValue("gas_per_lease", label, vm.lastCallGas().gasTotalUsed / n);
    }

    function _open(Mix memory mix, bool measured) private {
        SignedMatch[] memory entries = new SignedMatch[](mix.n);
        for (uint256 i; i < mix.n; ++i) {
            (Party memory seller, uint32 index) = _seller(mix, i);
            Ask memory ask = _askFrom(seller.wallet, index);
            Bid memory bid = _bidFrom(_buyers[i % mix.buyers].wallet);
            bytes memory askSignature = _sign(mix.keys ? seller.key : seller.wallet, _hash(ask));
            entries[i] = SignedMatch(ask, bid, askSignature, _sign(bid.buyer, _hash(bid)));
        }
        bytes memory data = _packMatches(entries);
        vm.prank(matcher);
        if (mix.packed) book.openPacked(product, PRICE, marketId, data);
        else book.openBatch(product, PRICE, marketId, entries);
        _record(mix, measured, "open", mix.n);
    }

    function _begin(Mix memory mix, bool measured) private {
        if (mix.packed) return _beginPacked(mix, measured);
        for (uint256 i; i < mix.n; ++i) {
            (Party memory seller, uint32 index) = _seller(mix, i);
            uint24 seq = book.machineOf(seller.wallet, index).seq;
            Ready memory ready = _readyOf(seller.wallet, index, seq);
            Accept memory accepted = Accept(seller.wallet, index, seq, uint32(block.timestamp));
            bytes memory readySignature = _signReady(mix.keys ? seller.key : seller.wallet, ready);
            bytes memory acceptSignature = _signAccept(_payer(mix, i), accepted);
            book.begin(ready, readySignature, accepted, acceptSignature);
        }
        if (mix.n == 1) _record(mix, measured, "begin", 1);
    }

    /// @dev Each provider begins its own leases, one call a provider.
    function _beginPacked(Mix memory mix, bool measured) private {
        uint256 callers = mix.n < mix.providers ? mix.n : mix.providers;
        for (uint256 k; k < callers; ++k) {
            bytes memory data;
            for (uint256 i = k; i < mix.n; i += mix.providers) {
                (Party memory seller, uint32 index) = _seller(mix, i);
                uint24 seq = book.machineOf(seller.wallet, index).seq;
                Accept memory accepted = Accept(seller.wallet, index, seq, uint32(block.timestamp));
                data = bytes.concat(data, _packStart(accepted, _signAccept(_payer(mix, i), accepted)));
            }
            vm.prank(mix.keys ? _providers[k].key : _providers[k].wallet);
            book.beginPacked(_providers[k].wallet, data);
        }
        if (callers == 1 || callers == 10) _record(mix, measured, "begin", mix.n / callers);
    }

    function _pay(Mix memory mix, bool measured, uint256 amount, bool close) private {
        Voucher[] memory vouchers = new Voucher[](mix.n);
        bytes[] memory buyerSigs = new bytes[](mix.n);
        bytes[] memory providerSigs = new bytes[](mix.n);
        bytes memory data;
        for (uint256 i; i < mix.n; ++i) {
            (Party memory seller, uint32 index) = _seller(mix, i);
            vouchers[i] = Voucher(seller.wallet, index, book.machineOf(seller.wallet, index).seq, uint48(amount));
            buyerSigs[i] = _signVoucher(_payer(mix, i), vouchers[i]);
            providerSigs[i] = _signFinal(mix.keys ? seller.key : seller.wallet, vouchers[i]);
            data = bytes.concat(data, _packClosing(vouchers[i], buyerSigs[i], providerSigs[i]));
        }
        vm.prank(matcher);
        if (!close) book.settleBatch(vouchers, buyerSigs);
        else if (mix.packed) book.closePacked(data, true);
        else book.closeBatch(vouchers, buyerSigs, providerSigs);
        _record(mix, measured, close ? "close" : "settle", mix.n);
    }

    function _seller(Mix memory mix, uint256 i) private view returns (Party memory, uint32 index) {
        return (_providers[i % mix.providers], uint32(1 + i / mix.providers));
    }

    function _payer(Mix memory mix, uint256 i) private view returns (address) {
        Party memory customer = _buyers[i % mix.buyers];
        return mix.keys ? customer.key : customer.wallet;
    }
}
