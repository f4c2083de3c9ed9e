"""One broker as a process: signals, the heap, log lines, work on a metadata store without a broker."""
