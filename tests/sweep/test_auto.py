"""The default launcher from end to end, on a machine with several cores and without a choice of the user's."""

import pytest
from helpers import read_records

from isobench.sweep import forecast, launchers, pool
from isobench.sweep.forecast import GIB, MemoryForecast
from isobench.sweep.pool import Pool


@pytest.fixture
def events(monkeypatch):
    """List what happens, in order: the starts of workers, and the peaks of their runs in MiB. There are two cores.

    A run that nothing was measured for counts as larger than the machine.
    """
    found = []
    start, add = Pool._start_worker, MemoryForecast.add

    def note_start(self):
        found.append("start")
        return start(self)

    def note_peak(self, cfg, peak):
        found.append(peak / 2**20)
        add(self, cfg, peak)

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(launchers, "_count_cores", lambda: 2)
    monkeypatch.setattr(launchers, "list_gpus", list)
    monkeypatch.setattr(forecast, "BASE_BYTES", 100 * GIB)
    monkeypatch.setattr(pool, "measure_free_memory", lambda: 50.0 * GIB)
    monkeypatch.setattr(Pool, "_start_worker", note_start)
    monkeypatch.setattr(MemoryForecast, "add", note_peak)
    return found


@pytest.mark.slow
def test_measured_memory_makes_room_for_more_now_and_in_the_next_command(cli, small, outputs, events):
    quick = [*small, "optimization.epochs=1", "-m"]
    code, _, err = cli(*quick, "seed=1,2,3")
    assert code == 0, err
    assert "1 at once: one more run needs about 10" in err
    peaks = [event for event in events if event != "start"]
    assert events == ["start", peaks[0], "start", *peaks[1:]]
    assert sorted(peaks) == sorted(
        record["cost"]["peak_memory_mib"]["resident"] for record in read_records(outputs).values()
    )
    assert min(peaks) > 50

    events.clear()
    code, _, err = cli(*quick, "seed=1,2,3,4,5")
    assert code == 0, err
    assert sorted(events[:3]) == sorted(peaks)  # of the records
    assert events[3:5] == ["start", "start"]
    assert "at once" not in err

    events.clear()
    code, _, err = cli(*quick, "seed=1,2,3,4,5,6")  # one run is left: in this process
    assert code == 0, err
    assert events == []
    records = read_records(outputs).values()
    assert len(records) == 6
    assert {record["provenance"]["threads"] for record in records} == {1}
