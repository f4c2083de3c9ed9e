"""How brokers of a test run: on a loop and a thread, or as a process; their time, their data, their listeners."""
