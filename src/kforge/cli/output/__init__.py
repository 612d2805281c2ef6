"""What the command line shows: progress, lines of text, JSON documents, and how values read."""
