// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IFirmLeases} from "../../src/interfaces/IFirmLeases.sol";
import {CloseReason} from "../../src/types/Lifecycle.sol";
import {MachineKey} from "../../src/types/MachineKey.sol";

/// @dev Stands where Futures would, and remembers what it is told.
contract FirmEar is IFirmLeases {
    struct Told {
        MachineKey machineKey;
        uint24 seq;
        CloseReason reason;
        uint24 left;
    }

    Told[] private _told;

    function leaseEnded(MachineKey machineKey, uint24 seq, CloseReason reason, uint24 left) external {
        _told.push(Told({machineKey: machineKey, seq: seq, reason: reason, left: left}));
    }

    function count() external view returns (uint256) {
        return _told.length;
    }

    function newest() external view returns (Told memory) {
        return _told[_told.length - 1];
    }
}
