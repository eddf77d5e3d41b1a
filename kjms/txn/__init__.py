"""Settlement: what of a queue or subscription is done, and what is committed of it."""
