"""Find an app's problems for ``kinesumer doctor``; each module checks one kind.

The checks are functions of an observation. Only ``observation``, ``permission_probe``
and ``runner`` call AWS.
"""
