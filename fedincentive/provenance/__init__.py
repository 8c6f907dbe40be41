"""Who said it, and that nobody changes it later: keys, a Merkle tree over the ledger, notes, witnesses, receipts.

`keys` and `statements` are names with Ed25519 keys, `merkle` proves that entries are in a ledger and that it only grew,
`notes` is what the center signs and agents cosign, `witness` what an agent remembers of it, `receipts` the file that
proves one entry to anybody. `rfc8032` checks signatures with nothing but the standard library.
"""
