"""The container image as a replacement for Kafka's images: their variables, and the scripts that others run in them."""
