"""Sessions: the ranks of a training loop that a user writes."""

from __future__ import annotations

import importlib
import sys
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from distgnn.api import job
from distgnn.api.data import Data, LoadOptions, ShareOfMean, share_of
from distgnn.api.graphs import open_share
from distgnn.api.settings import naming_arguments
from distgnn.api.shared_models import SharedModel
from distgnn.comm.binding import apply_threads
from distgnn.comm.group import REDUCIBLE
from distgnn.datasets.errors import InputError
from distgnn.datasets.limits import num_killed
from distgnn.exchange.clock import Clock
from distgnn.kernels.tensors import computed
from distgnn.training.loop.own_model import check_own, leaves, trainable
from distgnn.weights.summed_gradients import SummedGradients

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    from torch import Tensor, nn

    from distgnn.api.data import ExchangeFactory
    from distgnn.api.graphs import Source
    from distgnn.comm.group import Group, ReduceOp

    Model = TypeVar("Model", bound=nn.Module)

Number = TypeVar("Number", "int", "float", "Tensor")

# Operations that turn shares of losses into shares of a loss.
_LINEAR = frozenset(
    f"{name}Backward0"
    for name in ("Add", "Sub", "Mul", "Div", "Neg", "Stack", "Sum", "ToCopy", "View")
)
_OPEN = threading.local()
"""Session of this thread, as `session`; ranks of tests are threads."""


def init(
    *,
    backend: str = "auto",
    device: str = "cpu",
    threads: int | None = None,
    seed: int = 0,
    interface: str | None = None,
    start_timeout: float = 120.0,
    heartbeat_timeout: float = 25.0,
) -> Session:
    """Meet the other ranks and return the session of this one.

    Ranks are the processes that mpirun, srun or torchrun started; a program that is started without
    them is one rank. Use it as `with dg.init() as ranks:`, so that all ranks end together.

    Args:
        backend: Transport: auto, gloo, mpi, or nccl for CUDA devices.
        device: cpu or cuda; with cuda one device a rank.
        threads: Threads of this rank; None for its share of the cores.
        seed: Seed of torch's generator on every rank, and of `LocalGraph.dropout`. Torch's own
            dropout draws the same for row k of every rank, so that results depend on the number of
            ranks; `distgnn.nn.Dropout` and `LocalGraph.dropout` draw by vertex.
        interface: Network interface of gloo; None for the one towards rank 0.
        start_timeout: Longest wait for the processes of all ranks, in seconds.
        heartbeat_timeout: Seconds of silence after which a rank counts as dead.

    Returns:
        The session.

    Raises:
        InputError: If a session is open already, or a value is not allowed here.
        PeerError: If the other ranks do not appear in time.
    """
    from distgnn.comm.open import check_device

    refuse_inside("distgnn.init")
    check_device(backend, device)
    before = torch.get_num_threads()
    group = job.open_ranks(
        backend=backend,
        interface=interface,
        threads=threads,
        start_timeout=start_timeout,
        heartbeat_timeout=heartbeat_timeout,
        device=device,
        identity={"verb": "distgnn.init"},
    )
    killed_before = num_killed()
    try:
        group = job.on_device(group, device, backend)
    except BaseException as error:
        if group.size > 1:
            job.end_job(group, error, killed_before=killed_before)
        raise
    torch.manual_seed(seed)
    return Session(group, seed=seed, ends_process=True, threads_before=before)


def refuse_inside(verb: str) -> None:
    """Refuse what opens ranks of its own while a session is open.

    Args:
        verb: Name of the function that was called.

    Raises:
        InputError: If a session is open in this thread.
    """
    if getattr(_OPEN, "session", None) is not None:
        raise InputError(
            f"{verb} opens the ranks itself, but a session of distgnn.init is still open; call it "
            "after the with block of the session has ended"
        )


class Session:
    """The ranks of a program, from `init`.

    Args:
        group: All ranks.
        seed: Seed of dropout.
        ends_process: Whether a failure on one of several ranks ends the process, as it must where
            ranks are processes.
        threads_before: Threads of torch that come back at the end; None where they stay.

    Attributes:
        rank: Number of this rank, in [0, size).
        size: Number of ranks.
        device: Device of this rank, on which data and models are.
    """

    def __init__(
        self,
        group: Group,
        *,
        seed: int = 0,
        ends_process: bool = False,
        threads_before: int | None = None,
    ) -> None:
        self._group = group
        self._threads_before = threads_before
        self._seed = seed
        self._ends_process = ends_process
        self._killed_before = num_killed()
        self._weights = SummedGradients(group, Clock())
        self._models: list[nn.Module] = []
        self._shared: list[SharedModel] = []
        self._data: list[Data] = []
        self._watches: list[Any] = []
        self._watched: set[nn.Parameter] = set()
        self._own_grads: dict[nn.Parameter, Tensor] = {}
        self._is_summing = False
        self._state = "new"
        self._thread = threading.get_ident()
        self.rank, self.size, self.device = group.rank, group.size, group.device
        if self.size == 1:
            self._begin()

    def _begin(self) -> None:
        self._state = "open"
        _OPEN.session = self

    def __enter__(self) -> Session:
        if self._state == "closed":
            raise InputError("the session has ended; call distgnn.init again")
        self._begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        is_over = error is None or (isinstance(error, SystemExit) and not error.code)
        try:
            if is_over:
                self.close()
        except BaseException as caught:
            self._fail(caught)
            raise
        if error is not None and not is_over:
            self._fail(error)

    def close(self) -> None:
        """Wait for the other ranks and leave them in order; the with statement does it."""
        if self._state == "closed":
            return
        for shared in self._shared:
            shared.settle()
        self._group.barrier()
        self._leave()
        self._group.close()

    def _leave(self) -> None:
        self._state = "closed"
        # A notebook goes on, with the threads that it had.
        if self._threads_before is not None:
            apply_threads(self._threads_before)
        if getattr(_OPEN, "session", None) is self:
            _OPEN.session = None
        for watch in self._watches:
            watch.remove()

    def _fail(self, error: BaseException) -> None:
        """End all ranks with the reason; on one rank the exception goes on."""
        self._leave()
        if self.size > 1 and self._ends_process:
            job.end_job(self._group, error, killed_before=self._killed_before)

    def _check_open(self) -> None:
        if self._state == "open":
            return
        if self._state == "closed":
            raise InputError("the session has ended; keep its work inside the with block")
        raise InputError(
            "a session of several ranks must be entered, so that all of them end together; write "
            "with distgnn.init() as ranks: around its work"
        )

    def load(
        self,
        source: Source,
        *,
        split_index: int = 0,
        feature_norm: str = "none",
        task: str = "auto",
        metric: str = "auto",
        sparse: bool = False,
        halo: str | ExchangeFactory | None = None,
        algorithm: str = "cd-0",
        bins: int | None = None,
        delay: int | None = None,
        delay_cache: bool = True,
        gradient_cache: bool | None = None,
        smoothing: float = 0.0,
        gradient_smoothing: float | None = None,
        warm_up_epochs: int = 0,
        overlap: bool = True,
        static_input: bool = True,
    ) -> Data:
        """Load this rank's share of a graph; collective.

        Args:
            source: Path of a partition directory with a part for each rank. On one rank also all
                that `distgnn.load` takes; a directory of several parts is then joined.
            split_index: Row of the masks.
            feature_norm: none; row: each vertex's features sum to 1; standard: each column has mean
                0 and variance 1 over all vertices.
            task: single-label, multi-label or regression; auto asks the labels.
            metric: accuracy, micro-f1, macro-f1, roc-auc, average-precision, mse, mae or r2; auto
                takes the data set's own, else the task's.
            sparse: Whether sparse features stay `SparseRows`, which layers of distgnn.nn read and
                modules of torch do not.
            halo: Words of --halo, but not auto, such as int8 or bins(5)+delay(5); None: rows travel
                as they are. Or a class of exchanges of your own, called with the ranks and device=.
                `Data.exact` always reads rows as they are.
            algorithm: cd-0: rows of other ranks are of this epoch; cd-R: R bins and delay R.
            bins: Share of the rows that travels in an epoch is 1 / bins; None: R.
            delay: Epochs between sending a row and using it; None: R.
            delay_cache: Whether a delayed row keeps its last value between its turns.
            gradient_cache: The same for gradients; None: as delay_cache.
            smoothing: Share of the average of a delayed row that stays when a new one arrives.
            gradient_smoothing: The same for gradients; None: as smoothing.
            warm_up_epochs: Synchronous epochs before delays begin.
            overlap: Whether rows travel while edges are walked.
            static_input: Whether layers of distgnn.nn aggregate `Data.x` once, not in every epoch.

        Returns:
            The data of this rank.

        Raises:
            InputError: If the source cannot be read, is cut into another number of parts, or a
                value is not allowed.

        References:
            Md et al., "DistGNN: Scalable Distributed Training for Large-Scale Graph Neural
            Networks", SC 2021, for cd-R.
        """
        self._check_open()
        own = None if isinstance(halo, str) else halo
        options = LoadOptions(
            split_index=split_index,
            feature_norm=feature_norm,
            task=task,
            metric=metric,
            sparse=sparse,
            run={
                "halo": halo if isinstance(halo, str) else None,
                "algorithm": algorithm,
                "bins": bins,
                "delay": delay,
                "delay_cache": delay_cache,
                "gradient_cache": gradient_cache,
                "smoothing": smoothing,
                "gradient_smoothing": gradient_smoothing,
                "warm_up_epochs": warm_up_epochs,
                "overlap": overlap,
                "static_input": static_input,
            },
            own=own,
        )
        with naming_arguments(options.names):
            is_delayed = options.may_delay(self._seed)
        if is_delayed and any(data.is_delayed for data in self._data):
            raise InputError(
                "a second graph with delays would use the messages of the first; load it with "
                "algorithm='cd-0' and rows that travel in every epoch, or in a program of its own"
            )
        share = job.collectively(self._group, lambda: open_share(source, self.rank, self.size))
        with naming_arguments(options.names):
            data = Data(share, self._group, options, self._seed)
        self._data.append(data)
        return data

    def replicate(self, model: Model, *, weights: str | None = None) -> Model:
        """Give every rank the weights and buffers of rank 0; collective.

        The session sums the gradients of its parameters in `backward`. Call it before the optimizer
        is built where the device is cuda, as the model moves there.

        Args:
            model: Module with forward(graph, x), or any other; changed in place.
            weights: Words of --weights, such as int8, every(8)+mean or every(1)+groups(2)+mean;
                None for sums of gradients. Where the words let ranks have models of their own,
                `backward` leaves this rank's gradient, and a step of an optimizer of torch.optim is
                followed by what the words say. Read `consensus` then.

        Returns:
            The same module, on this rank's device.

        Raises:
            InputError: If the module would compute something else on several ranks: batch norm of
                torch, a buffer with a row for each vertex, or other shapes on other ranks. If the
                words are no strategy, or the module shares parameters with one of other words.
        """
        self._check_open()
        # Ranks meet below: where they are threads, none steps while another begins to watch.
        self._watch_optimizers()
        num_vertices = max((data.num_vertices for data in self._data), default=0)
        check_own(model, self._group, num_vertices=num_vertices)
        model.to(self.device)
        kept = [each for each in self._shared if each.model is not model]
        others = [other for other in self._models if other is not model]
        own: list[nn.Module] = [model]
        added = []
        if weights is not None:
            added.append(SharedModel(model, weights, self._group, self._seed))
        if any(
            each.holds(one)
            for those, models in ((added, others), (kept, own))
            for each in those
            for one in trainable(models)
        ):
            raise InputError(
                f"the model with weights={weights!r} has parameters of another replicated "
                "model; replicate one module that holds both"
            )
        for before in self._shared:
            if before not in kept:
                before.settle()
        self._weights.broadcast(model)
        self._shared = [*kept, *added]
        self._models = [*others, model]
        self._watch_gradients()
        return model

    def backward(self, loss: Tensor, *, count: int | None = None) -> Tensor:
        """Compute gradients, sum them over ranks, and end the epoch of the exchange; collective.

        Afterwards each parameter of the replicated models has the same gradient on every rank, that
        of the mean loss over all ranks. It is added to a gradient that is there already. The words
        of `replicate` may say otherwise. Where they let ranks have models of their own, only those
        that the loss depends on take part, which are the same on every rank.

        Args:
            loss: () tensor: this rank's share, from `Data.loss` or `Data.mean`, or sums and
                multiples of shares. With count, the mean over this rank's own terms. Where no graph
                was loaded, a mean over as many terms as on every other rank.
            count: Number of terms, such as vertices, that this rank's loss is the mean of; 0 if it
                has none. None for a share, and for a mean over as many terms as elsewhere.

        Returns:
            () tensor: the loss over all ranks, the same on every rank. Where no graph was loaded
            and ranks have models of their own, this rank's loss, as nothing is sent for it.

        Raises:
            InputError: If no model was replicated, the loss depends on parameters of another one,
                or the loss is neither a share nor comes with a count on several ranks. If there is
                a gradient that loss.backward() made on one of several ranks.
        """
        self._check_open()
        if not self._models:
            raise InputError(
                "ranks.backward sums the gradients of replicated models, but there is none; call "
                "model = ranks.replicate(model) before the optimizer is built"
            )
        is_alone = not self._data and all(
            any(each.model is model and each.is_local for each in self._shared)
            for model in self._models
        )
        loss = self._checked(loss, count)
        parameters = list(trainable(self._models))
        self._watch_gradients()
        self._check_gradients(parameters)
        self._own_grads.clear()
        reached = self._checked_leaves(loss, parameters)
        before = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        self._is_summing = True
        try:
            loss.backward()  # type: ignore[no-untyped-call]
        finally:
            self._is_summing = False
        rest = [one for one in parameters if not any(each.holds(one) for each in self._shared)]
        self._weights.sum(rest)
        for shared in self._shared:
            # Of models that train in turn a loss is that of some, and the others have no step.
            if not shared.is_local or any(shared.holds(each) for each in reached):
                shared.after_backward()
        for parameter, grad in zip(parameters, before, strict=True):
            if grad is not None:
                parameter.grad = grad if parameter.grad is None else parameter.grad.add_(grad)
        total = loss.detach().to(computed(loss.dtype), copy=True)
        if is_alone and count is None:
            return total * self.size
        self._group.all_reduce(total)
        for data in self._data:
            data.end_epoch()
        return total

    def _checked(self, loss: Tensor, count: int | None) -> Tensor:
        """Return a loss that is a share of the whole."""
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or loss.grad_fn is None:
            raise InputError(
                "ranks.backward takes a loss of one number that depends on weights of the model; "
                "compute it from the model's scores, for example data.loss(scores, 'train'), "
                "outside of torch.no_grad"
            )
        loss = loss.reshape(()) if loss.ndim else loss
        if count is not None:
            if count < 0:
                raise InputError(f"count must be at least 0, got {count}")
            whole = self.all_reduce(count)
            if not whole:
                raise InputError("count is 0 on every rank, so there is no loss; check the mask")
            return share_of(loss, count / whole)
        if not _is_share(loss) and not self._data:
            return self.once(loss)
        if self.size > 1 and not _is_share(loss):
            raise InputError(
                "the loss is not divided by the number of vertices of all ranks: a mean over one "
                "rank's rows weighs ranks, not vertices; use data.loss(scores, 'train') or "
                "data.mean(values, 'train'), or say how many terms it is the mean of with "
                "ranks.backward(loss, count=int(mask.sum())); for a penalty on weights add "
                "ranks.once(penalty)"
            )
        return loss

    def once(self, value: Tensor) -> Tensor:
        """Let a value that every rank computes alike count once in a loss.

        Args:
            value: () tensor that is the same on every rank, such as a penalty on weights.

        Returns:
            () tensor, its share of this rank: value / size.
        """
        return share_of(value, 1 / self.size)

    def _checked_leaves(self, loss: Tensor, parameters: list[nn.Parameter]) -> list[Tensor]:
        """Return what a loss depends on, if these are parameters of replicated models."""
        known = {id(parameter) for parameter in parameters}
        reached = list(leaves(loss))
        for leaf in reached:
            if isinstance(leaf, torch.nn.Parameter) and id(leaf) not in known:
                raise InputError(
                    f"the loss depends on a parameter of shape {tuple(leaf.shape)} that is of no "
                    "replicated model, so each rank would train its own; call "
                    "ranks.replicate(model) with the model that has it"
                )
        return reached

    def _watch_optimizers(self) -> None:
        """Have torch's optimizers checked before and after each step."""
        if not self._watches:
            module = importlib.import_module("torch.optim.optimizer")
            self._watches = [
                module.register_optimizer_step_pre_hook(self._check_step),
                module.register_optimizer_step_post_hook(self._end_step),
            ]

    def _watch_gradients(self) -> None:
        """Have gradients noted that are made outside of `backward`, and are of one rank."""
        if self.size == 1:
            return
        for parameter in trainable(self._models):
            if parameter not in self._watched:
                self._watched.add(parameter)
                watch: Any = parameter.register_post_accumulate_grad_hook
                self._watches.append(watch(self._note_gradient))

    def _note_gradient(self, parameter: Any) -> None:
        if not self._is_summing:
            self._own_grads[parameter] = parameter.grad

    def _check_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Refuse gradients of one rank, which a new tensor or zeros have not replaced."""
        for parameter in parameters if self._own_grads else ():
            grad = self._own_grads.get(parameter)
            if grad is None or parameter.grad is not grad or not grad.any():
                continue
            if not any(each.is_local and each.holds(parameter) for each in self._shared):
                raise InputError(
                    f"the gradient of a parameter of shape {tuple(parameter.shape)} is of this "
                    f"rank alone, so the models of {self.size} ranks would differ; call "
                    "ranks.backward(loss) in place of loss.backward(), or optimizer.zero_grad() "
                    "if it is not to count, or sum it: p.grad = ranks.all_reduce(p.grad)"
                )

    def _check_step(self, optimizer: Any, *rest: Any) -> None:
        del rest
        if threading.get_ident() != self._thread:
            return  # Of another rank, where ranks are threads.
        known = {id(parameter) for model in self._models for parameter in model.parameters()}
        held = [each for group in optimizer.param_groups for each in group["params"]]
        foreign = [each for each in held if id(each) not in known]
        if foreign:
            what = "no parameter" if len(foreign) == len(held) else "parameters beside those"
            raise InputError(
                f"the optimizer holds {what} of a replicated model; build it from "
                "model.parameters() after model = ranks.replicate(model)"
            )
        self._check_gradients(held)
        for shared in self._shared:
            shared.before_step(optimizer)

    def _end_step(self, optimizer: Any, *rest: Any) -> None:
        del rest
        if threading.get_ident() == self._thread:
            # A closure makes its gradients in the step.
            self._check_gradients(
                each for group in optimizer.param_groups for each in group["params"]
            )
            for shared in self._shared:
                shared.after_step(optimizer)

    @contextmanager
    def consensus(self) -> Iterator[None]:
        """Give the replicated models the mean of all ranks inside a with block; collective.

        Where ranks have models of their own, it is this mean that is evaluated and saved. After the
        block each rank has its own model again. Other models are the same on every rank anyway.
        """
        self._check_open()
        with ExitStack() as stack:
            for shared in self._shared:
                stack.enter_context(shared.consensus())
            yield

    def take_weight_bytes(self) -> int:
        """Return the payload bytes of gradients and weights that this rank sent since then.

        Sums of losses and counts are not among them. The count begins anew with each call.
        """
        return self._weights.take_bytes() + sum(each.take_bytes() for each in self._shared)

    def all_reduce(self, value: Number, op: ReduceOp = "sum") -> Number:
        """Combine a value of every rank; collective.

        Args:
            value: Number, or tensor of the same shape and dtype on every rank; not changed.
            op: sum, max or min.

        Returns:
            The result, of the same kind, the same on every rank; without a gradient.

        Raises:
            InputError: If values of the tensor's type cannot be combined.
        """
        self._check_open()
        if isinstance(value, torch.Tensor):
            if value.dtype not in REDUCIBLE:
                raise InputError(
                    f"all_reduce combines tensors of floats of 16, 32 or 64 bits and of integers, "
                    f"got {value.dtype}; convert it, for example with .float() or .int()"
                )
            result = value.detach().clone(memory_format=torch.contiguous_format)
            self._group.all_reduce(result, op)
            return result
        dtype = torch.int64 if isinstance(value, int) else torch.float64
        number = torch.tensor(value, dtype=dtype)
        self._group.all_reduce(number, op)
        return type(value)(number.item())

    def print(self, *values: object) -> None:
        """Print on rank 0 alone, at once.

        Args:
            values: Values, as for Python's own `print`.
        """
        if self.rank == 0:
            sys.stdout.write(" ".join(map(str, values)) + "\n")
            sys.stdout.flush()

    def __repr__(self) -> str:
        return (
            f"Session(rank {self.rank} of {self.size} on {self.device}, {self._state},\n"
            f"        {len(self._data)} graphs loaded, {len(self._models)} models replicated)"
        )


def _is_share(loss: Tensor) -> bool:
    """Whether a loss is made of shares by sums and by products with constants."""
    waiting = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or getattr(node, "_forward_cls", None) is ShareOfMean:
            continue
        following = [each for each, _ in node.next_functions if each is not None]
        is_product = node.name() in ("MulBackward0", "DivBackward0")
        if node.name() not in _LINEAR or not following or (is_product and len(following) > 1):
            return False
        waiting.extend(following)
    return True
