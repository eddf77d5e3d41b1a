"""The implementation of the JMS API: one module per interface; import the names from `kjms`."""
