"""Speed and memory of Fermix, as ratios measured in one run. `make bench` prints one JSON object a line."""
