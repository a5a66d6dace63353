"""python -m isobench.prune: see isobench/cli/prune.py."""

from isobench.cli.prune import main

if __name__ == "__main__":
    main()
