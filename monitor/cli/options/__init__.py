"""The options of the commands, and the parts that they become."""
