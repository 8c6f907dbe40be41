"""Takes the clients' updates apart into plain arrays, without copying, and puts results together again.

An update is a NumPy array, a CPU or CUDA torch tensor, or a mapping of names to either. Torch is never imported here:
a tensor can only be present if somebody else imported it.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

import numpy as np

from ..errors import AggregationError
from . import native

CENTER = -1  # who a center is, beside clients 0, 1, ...
FLOAT32, FLOAT64, FLOAT16, BFLOAT16 = range(4)
NUMPY_CODES: dict[np.dtype, int] = {
    np.dtype(np.float32): FLOAT32,
    np.dtype(np.float64): FLOAT64,
    np.dtype(np.float16): FLOAT16,
}
DTYPES: dict[int, np.dtype] = {code: dtype for dtype, code in NUMPY_CODES.items()}
TORCH_CODES = {"torch.float32": FLOAT32, "torch.float64": FLOAT64, "torch.float16": FLOAT16, "torch.bfloat16": BFLOAT16}


class Field:
    """One named array of all clients: `arrays[i]` is a view of client i's values (bfloat16 as 16-bit integers).

    Where all of them are plain (see csrc/plain.hpp) their addresses are known and views are only made if asked for.
    """

    def __init__(
        self,
        name: str | None,  # None: the update is a single array
        code: int | None,  # None: integers or booleans
        arrays: list[np.ndarray] | None,
        original: Any,  # client 0's array or tensor, whose kind, dtype and device the result takes
        plain: PlainArrays | None = None,
    ) -> None:
        self.name, self.code, self.original, self.plain = name, code, original, plain
        self._arrays = arrays

    @property
    def arrays(self) -> list[np.ndarray]:
        if self._arrays is None and self.plain is not None:
            self._arrays = [view(self.name, index, item)[0] for index, item in enumerate(self.plain.items)]
        return self._arrays or []

    @property
    def on_device(self) -> bool:
        """Whether `arrays` are CUDA tensors."""
        return self.plain is None and not isinstance(self.arrays[0], np.ndarray)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.plain.shape if self.plain is not None else tuple(self.arrays[0].shape)

    def select(self, clients: Sequence[int]) -> Field:
        """The same with only some clients, in the given order."""
        if self.plain is not None:
            return Field(self.name, self.code, None, self.original, self.plain.select(clients))
        return Field(self.name, self.code, [self.arrays[i] for i in clients], self.original)


@dataclass(frozen=True)
class PlainArrays:
    """Arrays or tensors of one dtype and shape, each with its values one after the other."""

    items: list[Any]
    shape: tuple[int, ...]
    addresses: np.ndarray

    def select(self, clients: Sequence[int]) -> PlainArrays:
        return PlainArrays([self.items[i] for i in clients], self.shape, self.addresses[list(clients)])


@dataclass(frozen=True)
class Batch:
    """The updates of all clients, entry by entry."""

    clients: int
    entries: list[Field]
    container: Callable[[Any], Any] | None  # from (name, array) pairs; None where an update is a single array

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to release: the arrays are the callers'."""

    def reduce(self, **options: Any) -> tuple[list[Any], Any]:
        from . import kernel

        return kernel.reduce(self, **options)

    def not_finite(self, **options: Any) -> list[int]:
        from . import kernel

        return kernel.not_finite(self, **options)

    def squared_distances(self, **options: Any) -> np.ndarray:
        from . import kernel

        return kernel.squared_distances(self, **options)

    def squared_norms(self, **options: Any) -> np.ndarray:
        """||x_i||^2 over all floating entries."""
        return self.squared_distances(center=[np.zeros(entry.shape) for entry in self.floating()], **options)

    def average(self, clients: Sequence[int], **options: Any) -> Any:
        """The update that is a (weighted) mean of some clients; counters are those of all."""
        results, _ = self.select(clients).reduce(**options)
        return self.assemble(results)

    def floating(self) -> list[Field]:
        return [entry for entry in self.entries if entry.code is not None]

    def select(self, clients: Sequence[int]) -> Batch:
        """The same with only some clients, in the given order."""
        return Batch(len(clients), [entry.select(clients) for entry in self.entries], self.container)

    def whose(self, client: int) -> str:
        """How errors call a client."""
        return str(client)

    def assemble(self, results: Iterable[Any]) -> Any:
        """The aggregated update: `results` are the floating entries in order; integer entries take the maximum."""
        values = iter(results)
        parts = [(entry.name, next(values) if entry.code is not None else largest(entry)) for entry in self.entries]
        if self.container is None:
            return parts[0][1]
        return self.container(parts)


def read(updates: Iterable[Any], center: Any = None) -> Batch:
    """Checks that the updates fit together and takes them apart; every error names the client and both values.

    A center has the form of one update and comes last, as if it were one more client's.
    """
    return read_items(without_counts(updates)[0], center)


def read_items(items: list[Any], center: Any = None) -> Batch:
    """The same of updates that are a list already, without example counts."""
    if not items:
        raise AggregationError("There are no updates to aggregate: give at least one client's.")
    if center is not None:
        read_all([items[0], center], [0, CENTER])
        items.append(center)
    return read_all(items, range(len(items)))


def without_counts(updates: Iterable[Any]) -> tuple[list[Any], list[float] | None]:
    """The updates of (example count, update) or (update, example count) pairs, and the counts; None: they are no pairs.

    FedML's users hold the first, Flower's the second.
    """
    try:
        items = list(updates)
    except TypeError:
        raise AggregationError(
            f"updates is a {type(updates).__name__}: give a list with an update for each client."
        ) from None
    if not items or not isinstance(items[0], (list, tuple)):
        return items, None
    ways = [[isinstance(part, (int, float, np.integer)) and not isinstance(part, bool) for part in item]
            if isinstance(item, (list, tuple)) and len(item) == 2 else [] for item in items]  # fmt: skip
    if not all(sum(way) == 1 for way in ways):
        return items, None
    return [item[way.index(False)] for item, way in zip(items, ways, strict=True)], [
        float(item[way.index(True)]) for item, way in zip(items, ways, strict=True)
    ]


def with_counts(updates: Iterable[Any], weights: Any) -> tuple[Any, Any]:
    """The same where weights are taken: the counts are the weights, unless others are given."""
    if not isinstance(updates, (list, tuple)):
        return updates, weights
    items, counts = without_counts(updates)
    return items, counts if weights is None else weights


def read_all(items: list[Any], who: Sequence[int]) -> Batch:
    if isinstance(items[0], (list, tuple)):
        return read_lists(items, who)
    if not isinstance(items[0], Mapping):
        entry = read_entry(None, items, who)
        if entry.code is None:
            raise AggregationError(
                f"Client 0's update has dtype {entry.original.dtype}; only float32, float64, float16 and bfloat16 are "
                "aggregated (integer entries only inside a mapping, where they take the maximum)."
            )
        return Batch(len(items), [entry], None)
    names = list(items[0])
    together = native.load().plain_dicts(items, names, *tensor_types())
    if together is not None:
        entries = [entry_of(name, values, found, who) for name, (values, found) in zip(names, together, strict=True)]
        return Batch(len(items), entries, container_of(items[0]))
    for index, item in zip(who, items, strict=True):
        check_names(names, index, item)
    entries = [read_entry(name, [item[name] for item in items], who) for name in names]
    return Batch(len(items), entries, container_of(items[0]))


def container_of(update: Mapping[str, Any]) -> Callable[[Any], Any]:
    """What makes a mapping like this one; a state_dict keeps the versions of its modules."""
    kind = OrderedDict if isinstance(update, OrderedDict) else dict
    versions = getattr(update, "_metadata", None)
    if versions is None or kind is dict:
        return kind

    def make(parts: Any) -> Any:
        made: Any = OrderedDict(parts)
        made._metadata = versions
        return made

    return make


def read_lists(items: list[Any], who: Sequence[int]) -> Batch:
    """Updates that are lists of arrays, as Flower's: entries go by their numbers, and the result is such a list."""
    kind = tuple if isinstance(items[0], tuple) else list
    for index, item in zip(who, items, strict=True):
        if not isinstance(item, (list, tuple)):
            raise AggregationError(
                f"{whose(None, index)} is a {type(item).__name__} but client 0's is a list of arrays."
            )
    batch = read_all([{str(number): array for number, array in enumerate(item)} for item in items], who)
    return Batch(batch.clients, batch.entries, lambda parts: kind(array for _, array in parts))


def check_names(names: list[str], index: int, item: Any) -> None:
    if not isinstance(item, Mapping):
        raise AggregationError(
            f"{whose(None, index)} is a {type(item).__name__} but client 0's is a mapping; all must be of one kind."
        )
    if len(item) == len(names) and all(map(item.__contains__, names)):
        return
    missing = [name for name in names if name not in item]
    extra = [name for name in item if name not in names] if len(item) + len(missing) != len(names) else []
    if missing or extra:
        raise AggregationError(
            f"{whose(None, index)} does not have the entries of client 0's: missing {missing}, unexpected {extra}."
        )


def read_entry(name: str | None, items: list[Any], who: Sequence[int]) -> Field:
    return entry_of(name, items, native.load().plain(items, *tensor_types()), who)


def entry_of(name: str | None, items: list[Any], found: Any, who: Sequence[int]) -> Field:
    """One entry of all clients; `found` is what csrc/plain.hpp knows of it, or None."""
    if found is not None:
        code, _, shape, addresses = found
        return Field(name, code, None, items[0], PlainArrays(items, shape, np.frombuffer(addresses, np.uint64)))
    views = [view(name, index, item) for index, item in zip(who, items, strict=True)]
    first, code, kind = views[0]
    device = None if kind is np.ndarray else items[0].device
    for index, item, (array, other_code, other_kind) in zip(who, items, views, strict=True):
        if other_kind is not kind:
            refuse(name, index, "is a", other_kind.__name__, kind.__name__)
        if device is not None and item.device != device:
            refuse(name, index, "is on device", item.device, device)
        if other_code != code or array.dtype != first.dtype:
            refuse(name, index, "has dtype", item.dtype, items[0].dtype)
        if array.shape != first.shape:
            refuse(name, index, "has shape", array.shape, first.shape)
    return Field(name, code, [array for array, _, _ in views], items[0])


def tensor_types() -> tuple[tuple[type, ...], Any]:
    """The tensors whose values are simply what is in their memory, and torch's way of lending it (since 2.10)."""
    torch = sys.modules.get("torch")
    return ((), None) if torch is None or not hasattr(torch, "Tensor") else types_of(torch)


@cache
def types_of(torch: Any) -> tuple[tuple[type, ...], Any]:
    return (torch.Tensor, torch.nn.Parameter), getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)


def refuse(name: str | None, index: int, what: str, got: Any, expected: Any) -> None:
    raise AggregationError(f"{whose(name, index)} {what} {got}, but client 0's {what} {expected}.")


def view(name: str | None, index: int | None, item: Any) -> tuple[np.ndarray, int | None, type]:
    """A NumPy view of an array or tensor, its dtype code, and its kind."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(item, torch.Tensor):
        return view_tensor(torch, name, index, item), code_of_tensor(item), torch.Tensor
    if isinstance(item, np.ma.MaskedArray):
        raise AggregationError(
            f"{whose(name, index)} is a masked array, and what is masked has no value: choose one with .filled(...)."
        )
    if isinstance(item, (np.ndarray, np.generic)):
        array = np.asarray(item)
        code = NUMPY_CODES.get(array.dtype)
        if code is None and array.dtype.kind not in "iub":
            raise AggregationError(
                f"{whose(name, index)} has dtype {array.dtype}; only float32, float64 and float16 in native byte "
                "order (and bfloat16 tensors) are aggregated. Convert it with .astype(...)."
            )
        return array, code, np.ndarray
    raise AggregationError(
        f"{whose(name, index)} is a {type(item).__name__}; give NumPy arrays, torch tensors, or mappings of them."
    )


def whose(name: str | None, index: int | None) -> str:
    what = "update" if name is None else f"entry {name!r}"
    if index == CENTER:
        return "The center" if name is None else f"The center's {what}"
    return f"The {what}" if index is None else f"Client {index}'s {what}"


@cache
def code_of_dtype(dtype: Any) -> int | None:
    return TORCH_CODES.get(str(dtype))


def code_of_tensor(tensor: Any) -> int | None:
    return code_of_dtype(tensor.dtype)


def view_tensor(torch: Any, name: str | None, index: int | None, tensor: Any) -> Any:
    """Shares the tensor's memory: no gradient history, no copy. A CUDA tensor stays one: its values stay there."""
    if not (tensor.is_cpu or tensor.is_cuda):
        raise AggregationError(
            f"{whose(name, index)} is on device {tensor.device}; the kernels run on CPU and CUDA. Copy it with .cpu() "
            "first."
        )
    if tensor.layout != torch.strided or tensor.is_complex() or tensor.is_quantized:
        raise AggregationError(
            f"{whose(name, index)} has layout {tensor.layout} and dtype {tensor.dtype}; only dense real tensors are "
            "aggregated."
        )
    code = code_of_tensor(tensor)
    if code is None and tensor.is_floating_point():
        raise AggregationError(
            f"{whose(name, index)} has dtype {tensor.dtype}; convert it to float32, float64, float16 or bfloat16."
        )
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    if tensor.is_cuda:
        return tensor
    return tensor.view(torch.int16).numpy() if code == BFLOAT16 else tensor.numpy()


def largest(entry: Field) -> Any:
    """Integer buffers (a BatchNorm step counter): the maximum over clients; booleans: true if any is."""
    if entry.on_device:
        tensors: list[Any] = list(entry.arrays)
        return reduce(sys.modules["torch"].maximum, tensors[1:], tensors[0].clone())
    result = np.array(entry.arrays[0])
    for array in entry.arrays[1:]:
        np.maximum(result, array, out=result)
    if isinstance(entry.original, (np.ndarray, np.generic)):
        return result
    return sys.modules["torch"].from_numpy(result)


def memory_order(arrays: list[np.ndarray]) -> tuple[int, ...] | None:
    """The order of axes in which every client's values lie one after the other (channels-last, say), or None."""
    first = arrays[0]
    plain = tuple(range(first.ndim))
    if all(array.flags.c_contiguous for array in arrays):
        return plain
    order = tuple(sorted(plain, key=lambda axis: -first.strides[axis]))
    return order if all(array.transpose(order).flags.c_contiguous for array in arrays) else None


def empty_like(entry: Field, order: tuple[int, ...] | None) -> tuple[Any, np.ndarray]:
    """A result of the clients' kind to fill, and a NumPy view of it, its values in the given order of axes."""
    shape = entry.shape
    dtype = np.dtype(np.int16) if entry.code == BFLOAT16 else DTYPES[entry.code or 0]
    if order is None or order == tuple(range(len(shape))):
        array = np.empty(shape, dtype)
    else:
        array = np.empty([shape[axis] for axis in order], dtype).transpose(
            [order.index(axis) for axis in range(len(shape))]
        )
    if isinstance(entry.original, (np.ndarray, np.generic)):
        return array, array
    torch = sys.modules["torch"]
    tensor = torch.from_numpy(array)
    return (tensor.view(torch.bfloat16) if entry.code == BFLOAT16 else tensor), array
