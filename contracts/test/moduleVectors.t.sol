// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {MarginLib} from "../src/libraries/MarginLib.sol";
import {ModuleHash} from "../src/libraries/ModuleHash.sol";
import {Assignment, FutureOrder} from "../src/types/Futures.sol";
import {Campaign, Pledge} from "../src/types/GroupBuys.sol";
import {stdJson} from "forge-std/StdJson.sol";
import {Test} from "forge-std/Test.sol";

/// @dev The libraries as a contract, since they hash calldata.
contract ModuleHashes {
    function order(FutureOrder calldata value) external pure returns (bytes32) {
        return ModuleHash.hash(value);
    }

    function assignment(Assignment calldata value) external pure returns (bytes32) {
        return ModuleHash.hash(value);
    }

    function pledge(Pledge calldata value) external pure returns (bytes32) {
        return ModuleHash.hash(value);
    }

    function campaignId(address groupBuy, Campaign calldata value) external view returns (bytes32) {
        return ModuleHash.campaignId(groupBuy, value);
    }

    function providersHash(address[] calldata providers) external pure returns (bytes32) {
        return ModuleHash.providersHash(providers);
    }
}

/// @dev orders.json and futures.json: Python signs, counts and names as the modules do.
contract ModuleVectors is Test {
    using stdJson for string;

    ModuleHashes private hashes;
    string private json;

    function setUp() external {
        hashes = new ModuleHashes();
    }

    // ------------------------------------------------------------------------------------------------ messages

    function test_vectors_whenModuleMessagesAreHashed_thenEqualPythons() external {
        json = vm.readFile("../tests/vectors/orders.json");
        uint256 checked;
        for (uint256 i; vm.keyExistsJson(json, _case(i)); ++i) {
            string memory name = json.readString(string.concat(_case(i), ".type"));
            bytes32 typeHash = keccak256(bytes(json.readString(string.concat(_case(i), ".typeString"))));
            bytes32 found = _structHash(keccak256(bytes(name)), i, typeHash);
            if (found == 0) continue; // a type that LeaseBook reads, not a module
            assertEq(found, json.readBytes32(string.concat(_case(i), ".structHash")), name);
            ++checked;
        }
        assertGe(checked, 3 * 3, "vectors are missing");
    }

    function _structHash(bytes32 name, uint256 i, bytes32 typeHash) private view returns (bytes32) {
        if (name == keccak256("FutureOrder")) {
            assertEq(typeHash, ModuleHash.FUTURE_ORDER, "type strings differ");
            return hashes.order(_order(i));
        }
        if (name == keccak256("Assignment")) {
            assertEq(typeHash, ModuleHash.ASSIGNMENT, "type strings differ");
            return hashes.assignment(_assignment(i));
        }
        if (name == keccak256("Pledge")) {
            assertEq(typeHash, ModuleHash.PLEDGE, "type strings differ");
            bytes32 campaignId = json.readBytes32(_field(i, "campaignId"));
            return hashes.pledge(
                Pledge(
                    json.readAddress(_field(i, "buyer")),
                    campaignId,
                    uint48(_uint(i, "maxAmount")),
                    uint16(_uint(i, "slices")),
                    uint32(_uint(i, "nonce"))
                )
            );
        }
        return 0;
    }

    function _order(uint256 i) private view returns (FutureOrder memory order) {
        order.trader = json.readAddress(_field(i, "trader"));
        order.isBuy = _uint(i, "isBuy") == 1;
        order.product = uint32(_uint(i, "product"));
        order.windowStart = uint32(_uint(i, "windowStart"));
        order.windowSeconds = uint24(_uint(i, "windowSeconds"));
        order.units = uint16(_uint(i, "units"));
        order.limitPricePerHour = uint64(_uint(i, "limitPricePerHour"));
        order.startBy = uint32(_uint(i, "startBy"));
        order.nonce = uint32(_uint(i, "nonce"));
        order.matcher = json.readAddress(_field(i, "matcher"));
    }

    function _assignment(uint256 i) private view returns (Assignment memory value) {
        value.contractId = uint40(_uint(i, "contractId"));
        value.isBuy = _uint(i, "isBuy") == 1;
        value.leaver = json.readAddress(_field(i, "leaver"));
        value.joiner = json.readAddress(_field(i, "joiner"));
        value.leaverPays = uint64(_uint(i, "leaverPays"));
        value.joinerPays = uint64(_uint(i, "joinerPays"));
        value.expiry = uint32(_uint(i, "expiry"));
        value.nonce = uint32(_uint(i, "nonce"));
    }

    // ------------------------------------------------------------------------------------------------ figures

    function test_vectors_whenMarginsAreCounted_thenEqualPythons() external {
        json = vm.readFile("../tests/vectors/futures.json");
        uint256 rows;
        // Each row in a call of its own: reading copies the file, and memory is only freed by returning.
        while (this.checkMargin(rows)) ++rows;
        assertGe(rows, 40, "vectors are missing");
    }

    /// @return Whether there is a row `i`.
    function checkMargin(uint256 i) external view returns (bool) {
        if (!vm.keyExistsJson(json, _case(i))) return false;
        (uint256 units, uint256 window) = (_row(i, "units"), _row(i, "window"));
        uint256 found =
            MarginLib.margin(_row(i, "price"), _row(i, "gpus"), units, window, _row(i, "bps"), _row(i, "floor"));
        assertEq(found, _row(i, "margin"), "margin");
        assertEq(MarginLib.part(found, units), _row(i, "part"), "part");
        assertEq(MarginLib.forfeit(_row(i, "part"), _row(i, "left"), window), _row(i, "forfeit"), "forfeit");
        return true;
    }

    function test_vectors_whenCampaignsAreNamed_thenEqualPythons() external {
        json = vm.readFile("../tests/vectors/futures.json");
        uint256 rows;
        for (; vm.keyExistsJson(json, _campaign(rows)); ++rows) {
            string memory path = _campaign(rows);
            Campaign memory campaign = Campaign({
                organiser: json.readAddress(string.concat(path, ".organiser")),
                product: uint32(_at(path, ".product")),
                pricePerHour: uint64(_at(path, ".pricePerHour")),
                duration: uint24(_at(path, ".duration")),
                goal: uint16(_at(path, ".goal")),
                windowStart: uint32(_at(path, ".windowStart")),
                deadline: uint32(_at(path, ".deadline")),
                marketId: uint16(_at(path, ".marketId")),
                providersHash: json.readBytes32(string.concat(path, ".providersHash"))
            });
            address groupBuy = json.readAddress(string.concat(path, ".contract"));
            bytes32 id = json.readBytes32(string.concat(path, ".id"));
            assertEq(hashes.campaignId(groupBuy, campaign), id, "campaign");
            address[] memory providers = json.readAddressArray(string.concat(path, ".providers"));
            if (providers.length == 0) continue;
            assertEq(hashes.providersHash(providers), campaign.providersHash, "providers");
        }
        assertGe(rows, 4, "vectors are missing");
    }

    // ------------------------------------------------------------------------------------------------ reading

    function _case(uint256 i) private pure returns (string memory) {
        return string.concat(".cases[", vm.toString(i), "]");
    }

    function _campaign(uint256 i) private pure returns (string memory) {
        return string.concat(".campaigns[", vm.toString(i), "]");
    }

    function _field(uint256 i, string memory name) private pure returns (string memory) {
        return string.concat(_case(i), ".fields.", name);
    }

    function _uint(uint256 i, string memory name) private view returns (uint256) {
        return vm.parseUint(json.readString(_field(i, name)));
    }

    function _row(uint256 i, string memory name) private view returns (uint256) {
        return _at(_case(i), string.concat(".", name));
    }

    function _at(string memory path, string memory name) private view returns (uint256) {
        return vm.parseUint(json.readString(string.concat(path, name)));
    }
}
