// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaseBookLog} from "../../../src/interfaces/ILeaseBookLog.sol";
import {ILeasePacked} from "../../../src/interfaces/ILeasePacked.sol";
import {ILeaseTrading} from "../../../src/interfaces/ILeaseTrading.sol";
import {SkipCode, Status} from "../../../src/types/Lifecycle.sol";
import {Accept, Voucher} from "../../../src/types/Orders.sol";
import {Packing} from "../../Packing.sol";

contract ClosePacked is Packing {
    uint24 private _seq;

    function setUp() public override {
        super.setUp();
        _seq = _openAndBegin();
    }

    /// @param finalSignature Empty: the provider signed nothing.
    function _assertTwin(
        address sender,
        Voucher memory voucher,
        bytes memory buyerSignature,
        bytes memory finalSignature
    ) private returns (uint256) {
        (Voucher[] memory vouchers, bytes[] memory buyerSignatures) = _one(voucher, buyerSignature);
        bytes[] memory finals = new bytes[](1);
        finals[0] = finalSignature;
        bytes memory plain = abi.encodeCall(ILeaseTrading.closeBatch, (vouchers, buyerSignatures, finals));
        bytes memory data = _packClosing(voucher, buyerSignature, finalSignature);
        return
            _assertTwins(sender, plain, abi.encodeCall(ILeasePacked.closePacked, (data, finalSignature.length != 0)));
    }

    function test_closePacked_whenLengthIsNoWholeNumberOfEntries_thenReverts() external {
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_BadLength.selector, 161, 97));
        book.closePacked(new bytes(161), false);
        vm.expectRevert(abi.encodeWithSelector(ILeaseBookLog.LeaseBook_BadLength.selector, 97, 161));
        book.closePacked(new bytes(97), true);
    }

    /// @dev Good and bad amounts, lease numbers, signers and times.
    function testFuzz_closePacked_whenFinalsAreThere_thenDoesWhatCloseBatchDoes(
        uint48 amount,
        uint24 seq,
        uint256 later,
        uint8 who,
        bool early
    ) external {
        skip(bound(later, 0, 2 * uint256(DURATION)));
        Voucher memory voucher = _voucher(uint24(bound(seq, _seq, _seq + 1)), bound(amount, 0, 2 * CAP));
        address signer = [buyer, sessionKey, stranger][who % 3];
        bytes memory signature = early ? _signFinal(signer, voucher) : _signVoucher(signer, voucher);
        bytes memory finalSignature = _signFinal([provider, nodeKey, stranger][(who / 3) % 3], voucher);
        assertGt(_assertTwin(stranger, voucher, signature, finalSignature), 0);
    }

    function test_closePacked_whenTheProviderOrItsNodeKeySends_thenNeedsNoFinal() external {
        skip(DURATION);
        Voucher memory voucher = _voucher(_seq, CAP / 2);
        bytes memory signature = _signVoucher(sessionKey, voucher);
        uint256 running = vm.snapshotState();
        _assertTwin(provider, voucher, signature, "");
        assertEq(_status(), Status.Free);
        vm.revertToState(running);
        _assertTwin(nodeKey, voucher, signature, "");
        assertEq(_status(), Status.Free);
    }

    function test_closePacked_whenTheWholeCapIsPaid_thenNeedsNoFinal() external {
        skip(DURATION);
        Voucher memory voucher = _voucher(_seq, CAP);
        _assertTwin(stranger, voucher, _signVoucher(sessionKey, voucher), "");
        assertEq(_status(), Status.Free);
    }

    function test_closePacked_whenAStrangerSendsLessWithoutFinal_thenSkips() external {
        skip(DURATION);
        Voucher memory voucher = _voucher(_seq, CAP - 1);
        bytes memory data = _packClosing(voucher, _signVoucher(sessionKey, voucher), "");
        _expectSkip(0, SkipCode.BAD_FINAL_SIGNATURE);
        vm.prank(stranger);
        book.closePacked(data, false);
        assertEq(_leaseOf(_seq).status, Status.Active);
    }

    /// @dev Pay is credited once for a row of a provider's entries, fees once a market: whoever else either of their
    /// accounts is in the batch.
    /// forge-config: default.fuzz.runs = 64
    function testFuzz_closePacked_whenMarketsAndProvidersTakeTurns_thenEachGetsItsOwn(uint256 seed) external {
        address[2] memory sellers = [provider, buyer];
        address[2] memory payers = [buyer, provider];
        uint16[3] memory markets = [marketId, _market(buyer, 100), _market(provider, 300)];
        bytes memory data;
        (Voucher[] memory vouchers, bytes[] memory buyers, bytes[] memory finals) =
            (new Voucher[](6), new bytes[](6), new bytes[](6));
        for (uint256 i; i < 6; ++i) {
            uint256 dice = uint256(keccak256(abi.encode(seed, i)));
            uint256 who = (dice >> 80) % 2;
            vouchers[i] = Voucher(sellers[who], uint32(100 + i), 1, uint48(dice % (CAP + 2)));
            _run(sellers[who], payers[who], vouchers[i].index, markets[(dice >> 64) % 3]);
            buyers[i] = _signVoucher(who == 0 ? sessionKey : payers[who], vouchers[i]);
            finals[i] = _signFinal(who == 0 ? nodeKey : sellers[who], vouchers[i]);
            data = bytes.concat(data, _packClosing(vouchers[i], buyers[i], finals[i]));
        }
        skip(DURATION);
        bytes memory plain = abi.encodeCall(ILeaseTrading.closeBatch, (vouchers, buyers, finals));
        assertEq(_assertTwins(stranger, plain, abi.encodeCall(ILeasePacked.closePacked, (data, true))), 6);
    }

    function _market(address account, uint16 feeBps) private returns (uint16 id) {
        vm.prank(account);
        id = book.registerMarket(feeBps);
    }

    /// @dev A lease of a machine of its own, opened by that market's matcher and begun now.
    function _run(address seller, address payer, uint32 index, uint16 market) private {
        vm.prank(seller);
        book.addMachine(index, BOND, product);
        marketId = market;
        _submit(matcher, PRICE, _paired(_askFrom(seller, index), _bidFrom(payer)));
        Accept memory accepted = Accept(seller, index, 1, uint32(block.timestamp));
        bytes memory data = _packStart(accepted, _signAccept(payer, accepted));
        vm.prank(seller);
        book.beginPacked(seller, data);
    }
}
