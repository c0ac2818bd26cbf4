"""What a run spends: every process that works on a task keeps a line of account in the run folder,
prices make money of it, and a budget stops the run when that is spent.
"""
