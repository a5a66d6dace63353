"""python -m isobench.status: see isobench/cli/status.py."""

from isobench.cli.status import main

if __name__ == "__main__":
    main()
