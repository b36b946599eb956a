"""Simulations: workloads, traces, virtual time, clients that leave, and reports."""
