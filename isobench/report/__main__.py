"""Make ``python -m isobench.report`` run isobench/cli/report.py.

By name and not by an import, because ``report`` must not depend on ``cli``, which stands below it.
"""

import runpy

if __name__ == "__main__":
    runpy.run_module("isobench.cli.report", run_name="__main__")
