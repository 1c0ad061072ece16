"""Rounds computed again and proofs of fraud, for strangers; the journal replayed, for operators."""
