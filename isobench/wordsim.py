"""python -m isobench.wordsim: see isobench/cli/wordsim.py."""

from isobench.cli.wordsim import main

if __name__ == "__main__":
    main()
