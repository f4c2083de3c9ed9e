"""The controller's image of the cluster (pure), how it is loaded and how it changes."""
