"""What runs inside a sandbox, or on the way into one: standard library only.

A fresh interpreter imports this folder alone, as the package `cell`, so nothing here may import
the rest of posttrain.
"""
