"""Sweeps: a grid of options times seeds, a cell for each, run wherever there are workers."""
