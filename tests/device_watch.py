"""Watch what a training step asks of its device: waits for a value, and tensors that are made on another device.

The device is torch's ``meta``: its tensors have shapes and no values. It stands for a GPU that is not here.
"""

import traceback
from pathlib import Path
from typing import NamedTuple

import torch
from pytorch_lightning.utilities import move_data_to_device
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

DEVICE = torch.device("meta")
READ_VALUE = {"_local_scalar_dense", "equal"}
SIZED_BY_VALUES = {"nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "repeat_interleave"}
# After these, torch reads back whether they succeeded.
CHECKED = {"_linalg_eigh", "_linalg_eigvals", "linalg_eig", "_linalg_svd", "linalg_inv", "linalg_cholesky"}
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}


class Event(NamedTuple):
    """Name a step's event (``wait`` or ``other device``), by which operator and functions, innermost last."""

    kind: str
    step: int
    operator: str
    callers: tuple[str, ...]

    def __str__(self):
        return f"step {self.step}, {self.kind}: {self.operator} in {' > '.join(self.callers[-4:])}"


class DeviceWatch(TorchDispatchMode):
    """Collect the events of everything that is computed in this context while ``recording``, gradients included.

    Where a value of the device is read, 0 is returned in its place, and -1 for a whole number.
    """

    def __init__(self):
        super().__init__()
        self.events: list[Event] = []
        self.recording, self.step = False, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = function._schema.name.split("::")[1]
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        if name in ("_to_copy", "copy_"):
            return self._copy(function, name, tensors, args, kwargs)
        if not any(x.device == DEVICE for x in tensors):
            result = function(*args, **kwargs)
            made = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
            if not tensors and any(x.device != DEVICE for x in made):
                self.note("other device", name)
            return result
        if name in READ_VALUE | SIZED_BY_VALUES | CHECKED:
            self.note("wait", name)
        if name in READ_VALUE:
            return read_placeholder(tensors[0].dtype)
        if name == "nonzero":  # as many as there can be
            return torch.empty(tensors[0].numel(), tensors[0].ndim, dtype=torch.long, device=DEVICE)
        if name in INDEXING:
            args = (args[0], self._index_by_numbers(args[1], name), *args[2:])
        if any(x.device != DEVICE and x.ndim for x in tensors):  # a number on the CPU travels with the call
            self.note("other device", name)
            args, kwargs = move_to_device((args, kwargs))
        return function(*args, **kwargs)

    def _index_by_numbers(self, indices, name):
        """Replace boolean masks, whose true places only the device knows, by as many numbers as they have entries."""
        numbers = []
        for index in indices:
            if index is not None and index.dtype in (torch.bool, torch.uint8):
                self.note("wait", name)
                places = torch.empty(index.numel(), dtype=torch.long, device=DEVICE)
                numbers += [places] * index.ndim
            else:
                numbers.append(index)
        return numbers

    def _copy(self, function, name, tensors, args, kwargs):
        source = tensors[-1].device
        target = tensors[0].device if name == "copy_" else kwargs.get("device") or source
        if source == DEVICE != target:
            self.note("wait", name)
            dtype = kwargs.get("dtype") or args[0].dtype
            return args[0] if name == "copy_" else torch.zeros_like(args[0], device=target, dtype=dtype)
        if target == DEVICE != source:
            self.note("other device", name)
        return function(*args, **kwargs)

    def note(self, kind, operator):
        if self.recording:
            self.events.append(Event(kind, self.step, operator, name_callers()))


class NumberWatch(TorchFunctionMode):
    """Report to a watch tensors that are made on the device from Python's numbers: a GPU waits for such a copy."""

    def __init__(self, watch):
        self.watch = watch

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function in (torch.tensor, torch.Tensor.new_tensor) and result.device == DEVICE:
            self.watch.note("other device", function.__name__)
        return result


def read_placeholder(dtype):
    if dtype == torch.bool:
        return False
    return 0.0 if dtype.is_floating_point else -1


def name_callers():
    """Name the functions that are running, but for torch's and pytest's own, as ``folder/file.py:function``."""
    names = []
    for frame in traceback.extract_stack():
        path = Path(frame.filename)
        if not {"torch", "_pytest", "pluggy"} & set(path.parts) and path.name != Path(__file__).name:
            names.append(f"{path.parent.name}/{path.name}:{frame.name}")
    return tuple(names)


def move_to_device(batch):
    """Move a batch to the watched device, as Lightning does: tensors, and objects that can move themselves."""
    return move_data_to_device(batch, DEVICE)
