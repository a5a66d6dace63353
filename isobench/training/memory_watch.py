"""Watch which tensors are alive while fake tensors, which have shapes and no values, go through a training step."""

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

BLOCK = 512  # bytes; torch's allocator for GPUs gives memory in multiples of it


class MemoryWatch(TorchDispatchMode):
    """Note every piece of memory that is made or freed in this context, with the ``label`` of that moment.

    Values are not known. Where a program reads one, it gets 1, -1 or False: a loss that is not yet known to be bad.

    Args:
        block: sizes are rounded up to multiples of this number of bytes.
    """

    def __init__(self, block: int = BLOCK) -> None:
        super().__init__()
        self.block, self.label = block, "workspace"
        self.labels: list[str] = []  # of every piece, by its number
        self.events: list[tuple[int, int]] = []  # a piece's number, and its bytes: negative if it was freed
        self._alive: dict[int, tuple[int, Any]] = {}  # a storage's address -> its number and weak reference

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carry out an operator, and note the memory of what it returns."""
        try:
            result = function(*args, **(kwargs or {}))
        except (DataDependentOutputException, DynamicOutputShapeException):
            if function is not torch.ops.aten._local_scalar_dense.default:
                raise
            dtype = args[0].dtype
            return False if dtype == torch.bool else 1.0 if dtype.is_floating_point else -1
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._note(tensor)
        return result

    def _note(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        address, size = storage._cdata, -(-storage.nbytes() // self.block) * self.block
        if address in self._alive or not size:
            return
        number = len(self.labels)
        self.labels.append(self.label)
        self.events.append((number, size))

        def free(_: Any) -> None:
            self.events.append((number, -size))
            self._alive.pop(address, None)

        self._alive[address] = number, weakref.ref(storage, free)

    def relabel(self, tensors: Iterable[Tensor | None], label: str) -> None:
        """Give the memory of these tensors a label, whatever it had when it was made."""
        for tensor in tensors:
            entry = None if tensor is None else self._alive.get(tensor.untyped_storage()._cdata)
            if entry is not None:
                self.labels[entry[0]] = label

    @contextmanager
    def labelled(self, label: str) -> Iterator[None]:
        """Give what is made in this context a label."""
        before, self.label = self.label, label
        try:
            yield
        finally:
            self.label = before

    def label_calls(self, owner: Any, name: str, label: str) -> None:
        """Give what a method of an object makes a label, from now on."""
        method: Callable[..., Any] = getattr(owner, name)

        def labelled(*args: Any, **kwargs: Any) -> Any:
            with self.labelled(label):
                return method(*args, **kwargs)

        setattr(owner, name, labelled)

    def measure_peak(self) -> Counter[str]:
        """Return the bytes of each label at the moment at which most memory is in use."""
        total, peak, end = 0, 0, 0
        for position, (_, size) in enumerate(self.events):
            total += size
            if total > peak:
                peak, end = total, position + 1
        sizes: Counter[str] = Counter()
        for number, size in self.events[:end]:
            sizes[self.labels[number]] += size
        return sizes
