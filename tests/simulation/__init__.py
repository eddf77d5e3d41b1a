"""Run kjms in a world that a seed decides: threads, time, chance, processes and faults."""
