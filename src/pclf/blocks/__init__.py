"""Blocks of users: ratings of any size, learned from a block at a time.

The rule: rows of users never leave their block. Items and tables go out to every block, and sums in the shape of items,
and small matrices, come back and are added up in the order of the blocks. A person belongs to a *part* by a hash of the
id, whatever the domain; a block is some parts. Only items have codes that hold everywhere.
"""
