"""A soak: everything that kjms offers at once, for hours, with faults at random: see docs/reliability.md."""
