"""Top-N lists: how they are made, and what they look like."""
