"""The nouns: frozen records and the vocabulary. No I/O, no clock, no behaviour beyond simple derivations."""
