"""Clocks, tasks, time-outs and files: what every part of the program runs on."""
