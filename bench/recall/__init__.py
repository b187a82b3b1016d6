"""How well stored words are found again: long conversations, questions about them, and the plain way to compare with.

No public set of this kind can be had where the bench runs, so this one is made from a seed. It was written down before
any ranking was, and is not to be changed to please one.
"""
