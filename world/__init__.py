"""What every part of a broker runs on: time, disk, network and threads as values, and how work takes turns."""
