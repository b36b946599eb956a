"""The fast path: compiled routines over quantised weights."""
