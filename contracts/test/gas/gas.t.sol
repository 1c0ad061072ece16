// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Role} from "../../src/types/Lifecycle.sol";
import {Accept, Ask, Bid, Ready, SignedMatch, Voucher} from "../../src/types/Orders.sol";
import {Fixture} from "../Fixture.sol";

/// @dev Gas of a lease's life per lease, each call its own transaction (calldata and base fee included), in the
/// steady state: every machine and account has had a lease before. Written to snapshots/, so that a change shows.
/// forge-config: default.isolate = true
contract Gas is Fixture {
    uint256 private constant PROVIDERS = 50;

    struct Party {
        address wallet;
        address key;
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

    function test_gas_whenWalletsSign_distinct() external {
        _measure({name: "wallets", n: 1, providers: 50, buyers: 50, keys: false});
        _measure({name: "wallets", n: 10, providers: 50, buyers: 50, keys: false});
        _measure({name: "wallets", n: 50, providers: 50, buyers: 50, keys: false});
    }

    function test_gas_whenWalletsSign_fiveBuyersTenProviders() external {
        _measure({name: "wallets 5x10", n: 50, providers: 10, buyers: 5, keys: false});
    }

    function test_gas_whenKeysSign_distinct() external {
        _measure({name: "keys", n: 1, providers: 50, buyers: 50, keys: true});
        _measure({name: "keys", n: 10, providers: 50, buyers: 50, keys: true});
        _measure({name: "keys", n: 50, providers: 50, buyers: 50, keys: true});
    }

    function test_gas_whenKeysSign_fiveBuyersTenProviders() external {
        _measure({name: "keys 5x10", n: 50, providers: 10, buyers: 5, keys: true});
    }

    /// @dev One round unmeasured, so that no slot is new, then the measured one.
    function _measure(string memory name, uint256 n, uint256 providers, uint256 buyers, bool keys) private {
        for (uint256 round; round < 2; ++round) {
            string memory label = round == 0 ? "" : string.concat(name, " n=", vm.toString(n));
            _open(label, n, providers, buyers, keys);
            _begin(label, n, providers, buyers, keys);
            skip(1 hours);
            _pay(label, n, providers, buyers, keys, CAP / 10, false);
            skip(DURATION);
            _pay(label, n, providers, buyers, keys, CAP / 2, true);
        }
    }

    function _record(string memory label, string memory step, uint256 n) private {
        if (bytes(label).length == 0) return;
        vm.snapshotValue("gas_per_lease", string.concat(label, " ", step), vm.lastCallGas().gasTotalUsed / n);
    }

    function _open(string memory label, uint256 n, uint256 providers, uint256 buyers, bool keys) private {
        SignedMatch[] memory entries = new SignedMatch[](n);
        for (uint256 i; i < n; ++i) {
            Party memory seller = _providers[i % providers];
            Ask memory ask = _askFrom(seller.wallet, uint32(1 + i / providers));
            Bid memory bid = _bidFrom(_buyers[i % buyers].wallet);
            bytes memory askSignature = _sign(keys ? seller.key : seller.wallet, _hash(ask));
            entries[i] = SignedMatch(ask, bid, askSignature, _sign(bid.buyer, _hash(bid)));
        }
        vm.prank(matcher);
        book.openBatch(product, PRICE, marketId, entries);
        _record(label, "open", n);
    }

    function _begin(string memory label, uint256 n, uint256 providers, uint256 buyers, bool keys) private {
        for (uint256 i; i < n; ++i) {
            Party memory seller = _providers[i % providers];
            Party memory customer = _buyers[i % buyers];
            uint32 index = uint32(1 + i / providers);
            uint24 seq = book.machineOf(seller.wallet, index).seq;
            Ready memory ready = _readyOf(seller.wallet, index, seq);
            Accept memory accepted = Accept(seller.wallet, index, seq, uint32(block.timestamp));
            bytes memory readySignature = _signReady(keys ? seller.key : seller.wallet, ready);
            bytes memory acceptSignature = _signAccept(keys ? customer.key : customer.wallet, accepted);
            book.begin(ready, readySignature, accepted, acceptSignature);
        }
        if (n == 1) _record(label, "begin", 1);
    }

    function _pay(
        string memory label,
        uint256 n,
        uint256 providers,
        uint256 buyers,
        bool keys,
        uint256 amount,
        bool close
    ) private {
        Voucher[] memory vouchers = new Voucher[](n);
        bytes[] memory buyerSigs = new bytes[](n);
        bytes[] memory providerSigs = new bytes[](n);
        for (uint256 i; i < n; ++i) {
            Party memory seller = _providers[i % providers];
            Party memory customer = _buyers[i % buyers];
            uint32 index = uint32(1 + i / providers);
            vouchers[i] = Voucher(seller.wallet, index, book.machineOf(seller.wallet, index).seq, uint48(amount));
            buyerSigs[i] = _signVoucher(keys ? customer.key : customer.wallet, vouchers[i]);
            providerSigs[i] = _signFinal(keys ? seller.key : seller.wallet, vouchers[i]);
        }
        vm.prank(matcher);
        if (close) book.closeBatch(vouchers, buyerSigs, providerSigs);
        else book.settleBatch(vouchers, buyerSigs);
        _record(label, close ? "close" : "settle", n);
    }
}
