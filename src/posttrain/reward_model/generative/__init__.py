"""Judges that write: what they are asked, how their answers are read, and who writes them."""
