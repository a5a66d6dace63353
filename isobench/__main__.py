"""python -m isobench: Hydra's entry. Light: torch and friends are imported once a config is valid."""

import os
import sys

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from isobench import hub, weights
from isobench.data import sources
from isobench.errors import UserError
from isobench.explain import explain
from isobench.report.table import Row, print_table, shown
from isobench.resources import conf_dir
from isobench.run import RunFolder, identify
from isobench.schema import register, to_config
from isobench.sweep.sweeper import BUSY, RUNS_VARIABLE, exit_code
from isobench.validate import validate

DEBUGGING = "HYDRA_FULL_ERROR" in os.environ  # the user wants tracebacks


def main() -> None:
    """Run isobench. Exit codes: 0 done, 1 a run failed, 2 something for the user to mend, 3 run elsewhere."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us, not to Hydra's own printing
    sys.argv[1:] = multirun_first(sys.argv[1:])
    register()
    try:
        hydra.main(version_base="1.3", config_path=conf_dir(), config_name="config")(job)()
    except KeyboardInterrupt:
        print("isobench: interrupted; finished runs are kept, the same command goes on", file=sys.stderr)
        raise SystemExit(130) from None
    except Exception as error:
        if DEBUGGING:
            raise
        complain(error)
        raise SystemExit(2) from None
    finally:
        if not DEBUGGING:
            del os.environ["HYDRA_FULL_ERROR"]


def multirun_first(arguments: list[str]) -> list[str]:
    """``-m`` before everything else: argparse refuses settings on both sides of it."""
    flags = ("-m", "--multirun")
    return [a for a in arguments if a in flags] + [a for a in arguments if a not in flags]


def job(config: DictConfig) -> int:
    """One run, alone or in a sweep; returns its exit code, and in a run alone exits with it."""
    alone = HydraConfig.get().mode == RunMode.RUN
    try:
        code = carry_out(config, alone)
    except Exception as error:
        if DEBUGGING:
            raise
        complain(error)
        code = 2 if isinstance(error, UserError | OmegaConfBaseException) else 1
    if alone and code:
        raise SystemExit(code)
    return code


def carry_out(config: DictConfig, alone: bool) -> int:
    """Validate, skip if finished, train, say how it went."""
    cfg = to_config(config)
    validate(cfg)
    identity = identify(cfg)
    row = Row(cfg, RunFolder(cfg.output_dir, identity.key), None)
    row.record = row.folder.settled(cfg.retry_failed)
    known = row.record is not None
    if not known:
        if "hub" in (sources.source_name(cfg.task, cfg.data), weights.source_name(cfg.encoder)):
            hub.reachable()  # before the libraries that read its answer are imported
        from isobench.train import train

        row.record = train(cfg, identity, row.folder)
    say(row, known, alone)
    return exit_code([row], BUSY if row.record is None else 0)


def say(row: Row, known: bool, alone: bool) -> None:
    """A run's progress line; alone, also its table."""
    cfg = row.cfg
    name = f"{cfg.task.name} {cfg.encoder.name} {cfg.calibration['name']} seed {cfg.seed}"
    if row.record is None:
        outcome = "another process is running it"
    elif row.record["failure"]:
        outcome = f"failed: {row.record['failure']['message']}"
    else:
        outcome = f"{cfg.task.primary} {shown(row)}"
    seconds = f" ({row.record['cost']['seconds']:.0f} s)" if row.record and not known else ""
    position = "" if alone else f"[{HydraConfig.get().job.num + 1}/{os.environ.get(RUNS_VARIABLE, '?')}] "
    before = "" if not known else ", ended so before"
    again = "; retry_failed=true tries again" if known and row.record and row.record["failure"] else ""
    print(f"{position}{name}: {outcome}{seconds}{before}{again}", file=sys.stderr, flush=True)
    if alone:
        print_table(cfg.experiment, [row])
        print(f"This run: {row.folder.path}")


def complain(error: Exception) -> None:
    """The one line; of an error that should not happen it says how to see where."""
    known = isinstance(error, UserError | HydraException | OmegaConfBaseException)
    text = str(error) if isinstance(error, UserError) else explain(error)
    text += "" if known else f" ({type(error).__name__}; HYDRA_FULL_ERROR=1 shows where)"
    print(f"isobench: {' '.join(text.split())}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
