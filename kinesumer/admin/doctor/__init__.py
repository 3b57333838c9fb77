"""Examine an app for ``kinesumer doctor``: each module checks one kind of problem.

The checks are functions of an observation; only ``observation``, ``permission_probe``
and ``runner`` call AWS.
"""
