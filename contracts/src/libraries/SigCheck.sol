// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC1271} from "@openzeppelin/contracts/interfaces/IERC1271.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";

/// @title SigCheck: who signed, without ever reverting
/// @dev Nothing is keyed by a signature: malleable and malformed ones just recover to nobody.
library SigCheck {
    /// @dev Enough for a multisignature wallet, too little to stop a batch.
    uint256 internal constant ERC1271_GAS = 60_000;

    /// @return signer The key behind a 65-byte or an EIP-2098 64-byte signature; zero for anything else.
    function recover(bytes32 digest, bytes calldata signature) internal pure returns (address signer) {
        if (signature.length == 65) {
            (signer,,) = ECDSA.tryRecoverCalldata(digest, signature);
        } else if (signature.length == 64) {
            (signer,,) = ECDSA.tryRecover(digest, bytes32(signature[:32]), bytes32(signature[32:64]));
        }
    }

    /// @notice Whether the contract at `wallet` accepts the signature (ERC-1271).
    /// @dev Bounded gas, and one word of whatever is returned: a hostile wallet costs its own entry and no more.
    function isAcceptedBy(address wallet, bytes32 digest, bytes calldata signature) internal view returns (bool ok) {
        if (wallet.code.length == 0) return false;
        bytes memory question = abi.encodeCall(IERC1271.isValidSignature, (digest, signature));
        bytes4 magic = IERC1271.isValidSignature.selector;
        assembly ("memory-safe") {
            mstore(0x00, 0)
            ok := staticcall(ERC1271_GAS, wallet, add(question, 0x20), mload(question), 0x00, 0x20)
            ok := and(ok, and(gt(returndatasize(), 0x1f), eq(mload(0x00), magic)))
        }
    }
}
