"""From streams of private data to blocks. What is in here sees private data."""
