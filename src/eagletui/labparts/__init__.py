"""The parts of the lab: where it is, how its steps run, what they do. `eagletui.lab` puts them together."""
