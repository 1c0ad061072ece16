"""Every bound of the system, each with its reason. The contracts hold the same numbers."""

from __future__ import annotations

from typing import Final

TOKEN_DECIMALS: Final = 6
"""Digits after the point of the payment token; LeaseBook refuses tokens with more than 8."""

PRICE_TICK: Final = 1_000
"""Price step, 0.001 token per GPU-hour: finer steps only buy queue-jumping."""

PRICE_MAX: Final = 2**48 - 1
"""Base units per GPU-hour; keeps every signed integer exact in RFC 8785 JSON (below 2^53)."""

AMOUNT_MAX: Final = 2**64 - 1
"""An account's cash is a uint64 word on chain."""

LEASE_CAP_MAX: Final = 2**48 - 1
"""A lease's cap and paid are 48-bit fields of the machine word (281 M tokens at 6 decimals)."""

GPU_SECONDS_MAX: Final = 2**48
"""65,535 GPUs for 194 days stay below it with room."""

DURATION_S_MAX: Final = 2**24 - 1
"""24 bits of seconds, 194 days."""

BASIS_POINTS_ONE: Final = 10_000
FEE_BPS_MAX: Final = 1_000
"""A market's fee is at most 10 %, fixed in the contract."""

AUDIT_BPS_MAX: Final = 12_000
"""A fully audited lease pays for more than one execution again."""

ORDER_LIFE_S_MAX: Final = 24 * 3600
"""An order that outlives a day would bind its signer to a forgotten price."""

GPUS_MAX: Final = 65_535
"""A bid's count is a uint16."""

SEQ_MAX: Final = 2**24 - 1
"""Leases one machine can ever have."""

NONCE_WINDOW: Final = 128
"""Live bids of one account; the window shares a word with its cash."""

NO_SHOW_S: Final = 300
"""Who fails to show up pays five minutes of price."""

START_WINDOW_S_MAX: Final = 3600
CLAIM_WINDOW_S_MAX: Final = 7 * 24 * 3600
RETIRE_DELAY_S_MAX: Final = 30 * 24 * 3600
NO_SHOW_S_MAX: Final = 15 * 60
COMMIT_WINDOW_S_MAX: Final = 7 * 24 * 3600
CHALLENGE_S_MAX: Final = 3 * 24 * 3600
HARD_CAP_S_MAX: Final = 3 * 24 * 3600
ANSWER_S_MAX: Final = 24 * 3600
FUTURES_LEAD_S_MAX: Final = 7 * 24 * 3600
"""What a deployment may choose: no time-out keeps anybody's money for longer."""

MARGIN_BPS_MAX: Final = 5_000
"""With it a unit's part of a margin stays below 2^48, like a unit's price."""

MARGIN_FLOOR_MAX: Final = 2**48 - 1
"""The rules of Futures hold it in 48 bits."""

GOSSIP_BYTES_MAX: Final = 16_384
"""Asks are short so that a node carries 3,000 providers a topic."""

MESSAGE_BYTES_MAX: Final = 1_048_576
"""One direct message; bulk goes by artefact stream."""

TERMS_BYTES_MAX: Final = 8_192
TERMS_WORDS_MAX: Final = 64
"""A bid's constraint document is evaluated against every ask of its class."""

ARTIFACT_BYTES_MAX: Final = 64 * 2**30
JOB_COMMAND_BYTES_MAX: Final = 65_536
JOB_FILES_MAX: Final = 1_024
JOB_ENVIRONMENT_MAX: Final = 128
JOB_RUNTIME_S_MAX: Final = 30 * 24 * 3600
LOG_CHUNK_BYTES_MAX: Final = 65_536
JOB_LOG_BYTES_MAX: Final = 8 * 2**20
"""What one job may print; the rest is cut and said to be cut."""
