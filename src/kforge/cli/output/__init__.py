"""What the command line shows: progress, lines of text, JSON documents, and values in words."""
