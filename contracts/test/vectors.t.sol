// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {OrderHash} from "../src/libraries/OrderHash.sol";
import {SettlementLib} from "../src/libraries/SettlementLib.sol";
import {Accept, Ask, Bid, Ready, Voucher} from "../src/types/Orders.sol";
import {stdJson} from "forge-std/StdJson.sol";
import {Test} from "forge-std/Test.sol";

/// @dev The library as a contract, since it hashes calldata.
contract Hashes {
    function ask(Ask calldata value) external pure returns (bytes32) {
        return OrderHash.hash(value);
    }

    function bid(Bid calldata value) external pure returns (bytes32) {
        return OrderHash.hash(value);
    }

    function ready(Ready calldata value) external pure returns (bytes32) {
        return OrderHash.hash(value);
    }

    function accepted(Accept calldata value) external pure returns (bytes32) {
        return OrderHash.hash(value);
    }

    function voucher(Voucher calldata value, bytes32 typeHash) external pure returns (bytes32) {
        return OrderHash.hash(value, typeHash);
    }
}

/// @dev The vectors that Python checks too: both sides sign and count alike.
contract Vectors is Test {
    using stdJson for string;

    Hashes private hashes;
    string private json;

    function setUp() external {
        hashes = new Hashes();
    }

    // ------------------------------------------------------------------------------------------------ orders

    function test_vectors_whenOrdersAreHashed_thenEqualPythons() external {
        json = vm.readFile("../tests/vectors/orders.json");
        bytes32 separator = _domainSeparator();
        uint256 checked;
        for (uint256 i; vm.keyExistsJson(json, _case(i)); ++i) {
            string memory name = json.readString(string.concat(_case(i), ".type"));
            bytes32 typeHash = keccak256(bytes(json.readString(string.concat(_case(i), ".typeString"))));
            bytes32 found = _structHash(keccak256(bytes(name)), i, typeHash);
            if (found == 0) continue; // a type that this contract does not read
            assertEq(found, json.readBytes32(string.concat(_case(i), ".structHash")), name);
            bytes32 digest = keccak256(abi.encodePacked(hex"1901", separator, found));
            assertEq(digest, json.readBytes32(string.concat(_case(i), ".digest")), name);
            ++checked;
        }
        assertGe(checked, 7 * 3, "vectors are missing");
    }

    function _structHash(bytes32 name, uint256 i, bytes32 typeHash) private view returns (bytes32) {
        if (name == keccak256("Ask")) return _of(typeHash, OrderHash.ASK, hashes.ask(_ask(i)));
        if (name == keccak256("Bid")) return _of(typeHash, OrderHash.BID, hashes.bid(_bid(i)));
        if (name == keccak256("Ready")) {
            Ready memory ready =
                Ready(_address(i, "provider"), _u32(i, "index"), _u24(i, "seq"), _b32(i, "runtimeHash"));
            return _of(typeHash, OrderHash.READY, hashes.ready(ready));
        }
        if (name == keccak256("Accept")) {
            Accept memory accepted =
                Accept(_address(i, "provider"), _u32(i, "index"), _u24(i, "seq"), _u32(i, "startedAt"));
            return _of(typeHash, OrderHash.ACCEPT, hashes.accepted(accepted));
        }
        if (name == keccak256("Voucher")) {
            return _of(typeHash, OrderHash.VOUCHER, hashes.voucher(_voucher(i), OrderHash.VOUCHER));
        }
        if (name == keccak256("Final")) {
            return _of(typeHash, OrderHash.FINAL, hashes.voucher(_voucher(i), OrderHash.FINAL));
        }
        if (name == keccak256("Delegate")) {
            bytes32 found = OrderHash.hashDelegate(_address(i, "account"), uint8(_uint(i, "role")), _u32(i, "expiry"));
            return _of(typeHash, OrderHash.DELEGATE, found);
        }
        return 0;
    }

    function _of(bytes32 found, bytes32 needed, bytes32 structHash) private pure returns (bytes32) {
        assertEq(found, needed, "type strings differ");
        return structHash;
    }

    function _ask(uint256 i) private view returns (Ask memory ask) {
        ask.provider = _address(i, "provider");
        ask.index = _u32(i, "index");
        ask.seq = _u24(i, "seq");
        ask.product = _u32(i, "product");
        ask.minPricePerHour = uint64(_uint(i, "minPricePerHour"));
        ask.minDuration = _u24(i, "minDuration");
        ask.maxDuration = _u24(i, "maxDuration");
        ask.startBy = _u32(i, "startBy");
        ask.matcher = _address(i, "matcher");
        ask.maxFeeBps = uint16(_uint(i, "maxFeeBps"));
        ask.flags = uint8(_uint(i, "flags"));
    }

    function _bid(uint256 i) private view returns (Bid memory bid) {
        bid.buyer = _address(i, "buyer");
        bid.product = _u32(i, "product");
        bid.count = uint16(_uint(i, "count"));
        bid.maxPricePerHour = uint64(_uint(i, "maxPricePerHour"));
        bid.duration = _u24(i, "duration");
        bid.startBy = _u32(i, "startBy");
        bid.openFrom = _u32(i, "openFrom");
        bid.provider = _address(i, "provider");
        bid.nonce = _u32(i, "nonce");
        bid.matcher = _address(i, "matcher");
        bid.maxFeeBps = uint16(_uint(i, "maxFeeBps"));
        bid.auditBps = uint16(_uint(i, "auditBps"));
        bid.flags = uint8(_uint(i, "flags"));
        bid.terms = _b32(i, "terms");
    }

    function _voucher(uint256 i) private view returns (Voucher memory) {
        return Voucher(_address(i, "provider"), _u32(i, "index"), _u24(i, "seq"), uint48(_uint(i, "amount")));
    }

    function _domainSeparator() private view returns (bytes32) {
        return keccak256(
            abi.encode(
                keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"),
                keccak256(bytes(json.readString(".domain.name"))),
                keccak256(bytes(json.readString(".domain.version"))),
                json.readUint(".domain.chainId"),
                json.readAddress(".domain.verifyingContract")
            )
        );
    }

    // ------------------------------------------------------------------------------------------------ settlement

    function test_vectors_whenSettlementIsCounted_thenEqualsPythons() external {
        json = vm.readFile("../tests/vectors/settlement.json");
        uint256 rows;
        // Each row in a call of its own: reading copies the file, and memory is only freed by returning.
        while (this.checkRow(rows)) ++rows;
        assertGe(rows, 50, "vectors are missing");
    }

    /// @return Whether there is a row `i`.
    function checkRow(uint256 i) external view returns (bool) {
        if (!vm.keyExistsJson(json, _case(i))) return false;
        (uint256 cap, uint256 paid) = (_row(i, "cap"), _row(i, "paid"));
        uint256 ceiling = SettlementLib.accrued(cap, _row(i, "elapsed"), _row(i, "duration"));
        assertEq(ceiling, _row(i, "accrued"), "accrued");
        uint256 total = SettlementLib.paidAfter(_row(i, "voucher"), ceiling, paid);
        assertEq(total - paid, _row(i, "payable"), "payable");
        uint256 fee = SettlementLib.shareDown(total - paid, _row(i, "feeBps"));
        assertEq(fee, _row(i, "fee"), "fee");
        assertEq(total - paid - fee, _row(i, "provider"), "provider");
        assertEq(cap - total, _row(i, "refundOnClose"), "refund");
        assertEq(SettlementLib.noShow(cap, _row(i, "duration"), 300), _row(i, "noShow"), "no-show");
        assertEq(SettlementLib.shareUp(cap - total, _row(i, "penaltyBps")), _row(i, "penalty"), "penalty");
        assertEq(SettlementLib.shareUp(cap, _row(i, "minBondBps")), _row(i, "bondNeeded"), "bond");
        return true;
    }

    // ------------------------------------------------------------------------------------------------ reading

    function _case(uint256 i) private pure returns (string memory) {
        return string.concat(".cases[", vm.toString(i), "]");
    }

    function _field(uint256 i, string memory name) private pure returns (string memory) {
        return string.concat(_case(i), ".fields.", name);
    }

    function _row(uint256 i, string memory name) private view returns (uint256) {
        return vm.parseUint(json.readString(string.concat(_case(i), ".", name)));
    }

    function _uint(uint256 i, string memory name) private view returns (uint256) {
        return vm.parseUint(json.readString(_field(i, name)));
    }

    function _u32(uint256 i, string memory name) private view returns (uint32) {
        return uint32(_uint(i, name));
    }

    function _u24(uint256 i, string memory name) private view returns (uint24) {
        return uint24(_uint(i, name));
    }

    function _address(uint256 i, string memory name) private view returns (address) {
        return json.readAddress(_field(i, name));
    }

    function _b32(uint256 i, string memory name) private view returns (bytes32) {
        return json.readBytes32(_field(i, name));
    }
}
