"""The matching kernel: numpy arrays in, numpy arrays out, integers only; it knows no order.

`capacity` serves bids from asks in slots of a `grid`, for lane B (`allocation`, greedily;
`ejection`, by a search after it); `auction` clears a batch of lane C at one price. `ladder`, a
continuous book of one series, serves no lane yet. `compiling` says how they are compiled and where
that is kept; call `warm_up` before the first round.
"""

from market.kernel.auction import clear
from market.kernel.capacity import Capacity
from market.kernel.grid import Grid
from market.kernel.ladder import Ladder
from market.kernel.warming import warm_up

__all__ = ["Capacity", "Grid", "Ladder", "clear", "warm_up"]
