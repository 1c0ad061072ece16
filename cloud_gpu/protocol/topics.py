"""The overlay's names: what is gossiped where, and what a peer answers."""

from __future__ import annotations

from typing import Final

ASKS_TOPIC: Final = "cloud-gpu/asks/1"
"""Payload: a signed advert, at most GOSSIP_BYTES_MAX."""

ASKS_PROTOCOL: Final = "/cloud-gpu/asks/1"
"""Asked "list", a peer answers the adverts it holds, as a JSON list: for whoever came late."""

MESSAGE_PROTOCOL: Final = "/cloud-gpu/message/1"
"""One message of `messages`; the answer is empty."""

AUDIT_PROTOCOL: Final = "/cloud-gpu/audit/1"
"""One message of `audit_messages`; the answer is empty."""

VERIFIERS_TOPIC: Final = "cloud-gpu/verifiers/1"
"""Payload: a signed verifier's notice."""

RECORD_PROTOCOL: Final = "/cloud-gpu/audit-record/1"
"""Asked "provider/index/seq#batch", a verifier answers its `AuditRecord`: for whoever checks."""
