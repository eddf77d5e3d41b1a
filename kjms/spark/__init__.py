"""Reading and writing JMS messages as Spark DataFrames, through Spark's own ``kafka`` format."""
