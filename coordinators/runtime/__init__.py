"""The partitions of an internal topic that this broker leads, with the state that a coordinator keeps in each."""
