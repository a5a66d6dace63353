"""What every folder above uses: errors, files, signals, the terminal."""
