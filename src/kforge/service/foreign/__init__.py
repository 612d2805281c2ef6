"""Judges programs for references that clients send: the whole evaluation, the reference included, runs in a cell.

A problem that the user names runs in the referee with the user's rights. The reference in a request is code of others,
so its referee runs in a cell of its own: a private root without the user's files, no network, and another user if
kforge runs as root. Inside that cell, the program has its usual sandbox.
"""
