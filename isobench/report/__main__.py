"""python -m isobench.report: run isobench/cli/report.py, which this folder may not import (the tower's direction)."""

import runpy

if __name__ == "__main__":
    runpy.run_module("isobench.cli.report", run_name="__main__")
