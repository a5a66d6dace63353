"""python -m isobench.dashboard: see isobench/cli/dashboard.py."""

from isobench.cli.dashboard import main

if __name__ == "__main__":
    main()
