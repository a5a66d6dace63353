"""The commands behind ``isobench``, one file each."""
