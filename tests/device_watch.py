"""Watch what a training step asks of its device: waits for a value, and tensors that are made on another device."""

import traceback
from pathlib import Path
from typing import NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

aten = torch.ops.aten
DEVICE = torch.device("meta")  # its tensors have shapes and no values, as those of a GPU that is not here
ROOT = Path(__file__).resolve().parents[1]
# torch reads back whether these succeeded, and waits for it on a GPU.
CHECKED_RESULTS = {"_linalg_eigh", "linalg_eig", "_linalg_svd", "linalg_inv_ex", "linalg_cholesky"}
SIZED_BY_VALUES = {"nonzero", "masked_select", "_unique", "_unique2", "unique_dim", "unique_consecutive", "repeat_interleave"}
COPIES = {"_to_copy", "copy_", "set_"}


class Event(NamedTuple):
    """What was asked (``wait`` or ``other device``), the operator, and the functions that asked, innermost last."""

    kind: str
    operator: str
    callers: tuple[str, ...]

    def __str__(self):
        return f"{self.kind}: {self.operator} in {' > '.join(self.callers[-4:])}"


class DeviceWatch(TorchDispatchMode):
    """Collect the events of everything that is computed in this context, gradients included.

    Where a value of the device is read, 0 is returned in its place, or -1 for a whole number.
    """

    def __init__(self):
        super().__init__()
        self.events: list[Event] = []
        self.recording = False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = function._schema.name.split("::")[1]
        tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
        on_device = any(x.device == DEVICE for x in tensors)
        if on_device and name in ("_local_scalar_dense", "equal"):
            self._note("wait", name)
            return read_placeholder(tensors[0].dtype)
        if on_device and name in SIZED_BY_VALUES | CHECKED_RESULTS:
            self._note("wait", name)
        if name in ("index", "index_put", "index_put_", "_index_put_impl_") and on_device:
            args = self._index_by_all(args, name)
        if name in COPIES:
            return self._copy(function, name, args, kwargs, tensors)
        if on_device and any(x.device != DEVICE and x.ndim for x in tensors):
            self._note("other device", name)
            args, kwargs = move_to_device((args, kwargs))
        result = function(*args, **kwargs)
        made = [x for x in tree_flatten(result)[0] if isinstance(x, torch.Tensor)]
        if not tensors and any(x.device != DEVICE for x in made):
            self._note("other device", name)
        return result

    def _index_by_all(self, args, name):
        """Index by whole ranges in place of the booleans, whose count of true values only the device knows."""
        indices = []
        for index in args[1]:
            if index is not None and index.dtype in (torch.bool, torch.uint8):
                self._note("wait", name)
                size = index.numel()
                indices += [torch.empty(size, dtype=torch.long, device=DEVICE) for _ in range(index.ndim)]
            else:
                indices.append(index)
        return (args[0], indices, *args[2:])

    def _copy(self, function, name, args, kwargs, tensors):
        target = kwargs.get("device") or tensors[0].device
        source = tensors[-1].device
        if source == DEVICE and target != DEVICE:
            self._note("wait", name)
            if name == "copy_":
                return args[0]
            return torch.zeros_like(args[0], device=target, dtype=kwargs.get("dtype") or args[0].dtype)
        if target == DEVICE and source != DEVICE:
            self._note("other device", name)
        return function(*args, **kwargs)

    def _note(self, kind, operator):
        if self.recording:
            self.events.append(Event(kind, operator, name_callers()))


def read_placeholder(dtype):
    if dtype == torch.bool:
        return False
    return 0.0 if dtype.is_floating_point else -1


def name_callers():
    """Name the functions that are running, but for torch's own: ``folder/file.py:function``, outermost first."""
    names = []
    for frame in traceback.extract_stack()[:-3]:
        path = Path(frame.filename)
        if "torch" in path.parts or "_pytest" in path.parts or "pluggy" in path.parts or path.name == "device_watch.py":
            continue
        names.append(f"{path.parent.name}/{path.name}:{frame.name}")
    return tuple(names)


def move_to_device(batch):
    """Move a batch to the watched device, as Lightning moves it to a GPU before the step."""
    return tree_map(lambda x: x.to(DEVICE) if isinstance(x, torch.Tensor) else x, batch)
