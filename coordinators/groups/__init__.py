"""The consumer group coordinator: its decisions (pure), and the shell around them."""
