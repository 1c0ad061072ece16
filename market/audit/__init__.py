"""For strangers: published rounds computed again, proofs of fraud, the journal replayed."""
