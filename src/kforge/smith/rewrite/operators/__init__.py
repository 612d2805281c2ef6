"""Rules for one family of operators each."""
