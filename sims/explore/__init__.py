"""Explore interleavings and faults of the engine: one seed is one run, every run can be repeated."""
