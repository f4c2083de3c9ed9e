"""The controller's image of the cluster, how it is loaded and how it changes."""
