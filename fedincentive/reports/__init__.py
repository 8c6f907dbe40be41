"""What happened, for people to read: one self-contained HTML page."""
