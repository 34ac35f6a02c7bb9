"""Rows in and out: reading and checking, codecs, labels, scaling, and where chunks come from."""
