"""One broker as a process: signals, the heap, log lines, the transfer of a metadata store."""
