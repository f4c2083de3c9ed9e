"""Live fault tests: a whole cluster of real processes under load, while it is cut, paused and killed."""
