"""What ``kinesumer doctor`` looks for: each module knows one kind of trouble.

Findings are functions of what was seen; only ``trials`` and ``examination`` ask AWS.
"""
