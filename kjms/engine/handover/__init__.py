"""How processes that consume one queue hand messages to each other."""
