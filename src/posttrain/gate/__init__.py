"""The gate: is the new policy better than the champion, and may it take its place?"""
