"""The metadata store: its interface, ZooKeeper, the embedded store, and the layout of the nodes."""
