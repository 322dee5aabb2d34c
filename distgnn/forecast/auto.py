"""Codes that are chosen while a run trains: `--halo auto`.

    before epoch 0      time the link between peers, the codes, and a forward pass
    seconds of b bits   work + max(0, wire(b) - hidden) + code(b), of the slowest rank
    hidden              wire of the rows that were sent, less the wait for them
    choice              the most bits within 5 % of the fastest
    every K epochs      time the link again, and score the same weights over exact and coded rows

Where codes change the validation metric by more than is allowed, or say nothing of the rows, more
bits are sent from then on, and exact rows in the end. Where the metric stays below its best by more
than that for three looks, rows are exact, too. All ranks decide by the same figures. What was
decided is a schedule of codes, such as int4+at(30)+int8. A run with it has the same bits.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any, cast

import torch

from distgnn.exchange.base import Synchronous
from distgnn.exchange.codec import EXACT, CodecSpec, HaloCodecs
from distgnn.exchange.rule import HaloRule, Rule
from distgnn.exchange.tags import EVALUATION_TAG, SETUP_TAG
from distgnn.forecast.pace import Link
from distgnn.forecast.traffic import planned_bytes, planned_evaluation_bytes
from distgnn.kernels.codec import decode_rows, encode_rows, row_bytes
from distgnn.machine.trials import best_seconds
from distgnn.training.config.codecs import halo_text, parse_halo

if TYPE_CHECKING:
    from distgnn.comm.group import Group
    from distgnn.exchange.codec import Bits
    from distgnn.exchange.route import Route
    from distgnn.exchange.rule import Auto
    from distgnn.training.loop.controllers import Record
    from distgnn.training.loop.trainer import Trainer

CHOICES: tuple[Bits, ...] = (32, 16, 8, 4, 2)
"""Bits of a value, the most first."""
WITHIN = 1.05
"""Share of the fastest epoch that a choice of more bits may take."""
# A pass backward and the update take about twice as long as a pass forward.
_PASSES = 3
_TRIAL_BYTES = 1 << 20
_TRIAL_ROWS = 1 << 12
_MOST_LOOKS_BELOW = 3


class AutoCodes:
    """Chooses the codes of a run between its epochs; see `Controller`.

    Args:
        trainer: Trainer of the run, on more than one rank.
        rule: How codes are chosen.
    """

    def __init__(self, trainer: Trainer, rule: Auto) -> None:
        self._trainer, self._rule = trainer, rule
        self._schedule: list[tuple[int, Bits]] = []
        self._least: Bits = CHOICES[-1]
        self._looks_below = 0
        self._best: float | None = None
        self._records: list[Record] = []
        self._note: str | None = None
        self._code_s = dict.fromkeys(CHOICES, 0.0)
        self._sent = dict.fromkeys(CHOICES, 0.0)
        self._evaluation_bytes, self._hidden_s = 0, 0.0
        exact = trainer.graphs.exact
        self._exchange = Synchronous(exact.group, first_tag=EVALUATION_TAG, device=exact.device)
        self._exchange.buffers = exact.exchange.buffers
        self._graph = exact.with_exchange(self._exchange)

    @property
    def bits(self) -> Bits:
        """Bits of a value now."""
        return self._schedule[-1][1] if self._schedule else CHOICES[0]

    def begin(self) -> None:
        """Measure, and choose the codes of the first epoch; see `Controller`."""
        self._prepare()
        work_s, wait_s = self._forward_seconds()
        link = self._try_link()
        wire_s = link.seconds(self._evaluation_bytes)
        # Of the wire of an epoch the same share is hidden behind work as of that of this pass.
        share = max(wire_s - wait_s, 0.0) / wire_s if wire_s else 0.0
        self._hidden_s = share * link.seconds(self._sent[CHOICES[0]])
        self._choose(0, link, work_s * _PASSES)

    def _prepare(self) -> None:
        """Count what an epoch sends with each code, and how long the codes take."""
        trainer = self._trainer
        model = trainer.known_model("--halo auto")
        for bits in CHOICES:
            self._sent[bits] = planned_bytes(trainer.config, model, trainer.graphs, CodecSpec(bits))
        self._evaluation_bytes = planned_evaluation_bytes(trainer.config, model, trainer.graphs)
        self._code_s = code_seconds(trainer.config.model.hidden_width, trainer.graph.device)

    def observe(self, record: Record) -> None:
        """Look at the link and the metric where that is due; see `Controller`."""
        self._records.append(record)
        epoch = record["epoch"] + 1
        if epoch % self._rule.every or epoch >= self._trainer.config.epochs:
            return
        if not self._sent[CHOICES[0]]:
            self._prepare()
        self._guard(record)
        link = self._try_link()
        # Ranks wait for rows, and for slower ranks; more than the wire of the rows is the latter.
        wire_s = link.seconds(self._sent[self.bits])
        waits = [min(one["exchange_wait_s"], wire_s) for one in self._records]
        work_s = statistics.median(
            one["epoch_s"] - one["pack_s"] - wait
            for one, wait in zip(self._records, waits, strict=True)
        )
        # Few rows tell little of how many could be hidden: what was seen once counts from then on.
        self._hidden_s = max(self._hidden_s, wire_s - statistics.median(waits))
        self._choose(epoch, link, max(work_s, 0.0))
        self._records = []

    def _try_link(self) -> Link:
        return try_link(self._trainer.group, self._routes())

    def _choose(self, epoch: int, link: Link, work_s: float) -> None:
        """Choose the codes from an epoch on."""
        values = self._sent[CHOICES[0]] / 4
        # Rows travel at most as long as there is work, without being waited for.
        hidden_s = min(self._hidden_s, work_s)
        own = [
            work_s
            + max(link.seconds(self._sent[bits]) - hidden_s, 0.0)
            + values * self._code_s[bits]
            for bits in CHOICES
        ]
        slowest = torch.tensor(own, dtype=torch.float64)
        self._trainer.group.all_reduce(slowest, "max")
        self._turn(epoch, choice_of(slowest.tolist(), self._least), slowest.tolist())

    def _turn(self, epoch: int, bits: Bits, seconds: list[float]) -> None:
        if self._schedule and bits == self.bits:
            return
        if epoch and not self._schedule:
            self._schedule.append((0, CHOICES[0]))
        self._schedule.append((epoch, bits))
        self._apply()
        now, exact = (1e3 * seconds[CHOICES.index(one)] for one in (bits, CHOICES[0]))
        self._note = (
            f"halo: {CodecSpec(bits).text} from epoch {epoch} on, {now:.1f} ms an epoch predicted; "
            f"{exact:.1f} ms with exact rows"
        )

    def _apply(self) -> None:
        """Let the exchange of training follow the schedule."""
        rule = parse_halo(self.strategy)
        self._trainer.graph.exchange.codecs = rule.codecs

    @property
    def strategy(self) -> str:
        """Words of --halo that repeat the run."""
        codecs = [(epoch, CodecSpec(bits)) for epoch, bits in self._schedule] or [(0, EXACT)]
        first = codecs[0][1]
        later = tuple((epoch, HaloCodecs(codec, codec)) for epoch, codec in codecs[1:])
        way = Rule(codec=first)
        return halo_text(HaloRule(forward=way, backward=way, later=later))

    def _guard(self, record: Record) -> None:
        """Ask for more bits where codes change the metric; collective."""
        if self.bits == CHOICES[0]:
            return
        trainer, codec = self._trainer, CodecSpec(self.bits)
        self._exchange.codecs = HaloCodecs(forward=codec)
        with trainer.weights.consensus(trainer.model), trainer.average.in_place():
            # The epoch has scored these weights already, where it was one that is evaluated.
            true = record.get("val_metric") if trainer.config.screening is None else None
            true = trainer.evaluate().metric["val"] if true is None else true
            seen = trainer.evaluate_on(self._graph).metric["val"]
        # The record of this epoch is made, and how far models are apart now is none of the next.
        trainer.weights.take_deviation()
        if true is None or seen is None:
            is_off = record["codec_error"] >= 1
        else:
            is_off = abs(true - seen) > self._rule.loss or record["codec_error"] >= 1
            sign = -1 if trainer.objective.measure.is_lower_better else 1
            self._best = max(sign * true, self._best if self._best is not None else sign * true)
            is_below = sign * true < self._best - self._rule.loss
            self._looks_below = self._looks_below + 1 if is_below else 0
        if self._looks_below >= _MOST_LOOKS_BELOW:
            self._least = CHOICES[0]
        elif is_off:
            self._least = CHOICES[CHOICES.index(self.bits) - 1]

    def _routes(self) -> list[Route]:
        halves = self._trainer.graphs.exact.blocks.forward
        return [halves.send.route, halves.reduce.route]

    def _forward_seconds(self) -> tuple[float, float]:
        """Time the work of a pass forward, and its waits."""
        trainer = self._trainer
        clock = trainer.graphs.exact.exchange.clock
        trainer.evaluate()
        clock.take()
        start = time.perf_counter()
        trainer.evaluate()
        total = time.perf_counter() - start
        wait = clock.take()["exchange_wait"]
        return max(total - wait, 0.0), wait

    def take_note(self) -> str | None:
        """Return what was changed; see `Controller`."""
        note, self._note = self._note, None
        return note

    def take_bytes(self) -> int:
        """Return the bytes of coded looks; see `Controller`."""
        return self._exchange.take_bytes()

    def figures(self) -> dict[str, Any]:
        """Return the words that repeat the run; see `Controller`."""
        return {"strategy": self.strategy}

    def state(self) -> dict[str, Any]:
        """Return the schedule and what the next look compares with; see `Controller`."""
        return {
            "schedule": self._schedule,
            "least": self._least,
            "looks_below": self._looks_below,
            "best": self._best,
            "hidden_s": self._hidden_s,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        if not state:
            return
        self._schedule = [(epoch, cast("Bits", bits)) for epoch, bits in state["schedule"]]
        self._least, self._best = state["least"], state["best"]
        self._looks_below, self._hidden_s = state["looks_below"], state["hidden_s"]
        self._apply()


def choice_of(seconds: list[float], least: Bits) -> Bits:
    """Return the most bits whose epoch takes little longer than the fastest.

    Args:
        seconds: Seconds of an epoch for each number of bits in `CHOICES`.
        least: Least bits that are allowed.
    """
    allowed = CHOICES[: CHOICES.index(least) + 1]
    times = dict(zip(allowed, seconds, strict=False))
    fastest = min(times.values())
    return next(bits for bits in allowed if times[bits] <= WITHIN * fastest)


def try_link(group: Group, routes: list[Route]) -> Link:
    """Time messages between the peers of a run, all at once; collective.

    Args:
        group: All ranks.
        routes: Who gets how many rows; the route with the most of them is tried.

    Returns:
        Speed of the slowest rank, and the time of short messages; the same on every rank.
    """
    sizes = torch.tensor([max(route.num_out, route.num_in) for route in routes])
    group.all_reduce(sizes, "max")
    route = routes[int(sizes.argmax())]
    width = max(_TRIAL_BYTES // max(int(sizes.max()), 1), 8)
    out, into = (torch.zeros(n, width, dtype=torch.uint8) for n in (route.num_out, route.num_in))
    long_s, short_s = (
        _seconds_of(group, route, out[:, :columns].contiguous(), into[:, :columns].contiguous())
        for columns in (width, 1)
    )
    own = max(route.num_out, route.num_in) * (width - 1) / max(long_s - short_s, 1e-9)
    found = torch.tensor([-own if own else -1e12, short_s], dtype=torch.float64)
    group.all_reduce(found, "max")
    return Link(-float(found[0]), float(found[1]))


def _seconds_of(group: Group, route: Route, out: torch.Tensor, into: torch.Tensor) -> float:
    def send() -> None:
        works = group.transfer(
            [(into[part.start : part.stop], part.peer) for part in route.incoming],
            [(out[part.start : part.stop], part.peer) for part in route.outgoing],
            SETUP_TAG,
        )
        for work in works:
            work.wait()

    group.barrier()
    return best_seconds(send)


def code_seconds(width: int, device: torch.device) -> dict[Bits, float]:
    """Time codes of rows.

    Args:
        width: Columns of a row.
        device: Where rows are.

    Returns:
        Seconds to write and read a value with each number of bits; 0 for exact rows.
    """
    rows = torch.randn(_TRIAL_ROWS, width, generator=torch.Generator().manual_seed(0)).to(device)
    found = dict.fromkeys(CHOICES, 0.0)
    for bits in CHOICES[1:]:
        codes = torch.empty(_TRIAL_ROWS, row_bytes(width, bits), dtype=torch.uint8, device=device)

        def code(bits: Bits = bits, codes: torch.Tensor = codes) -> None:
            seed = None if bits == 16 else 1
            encode_rows(rows, None, _TRIAL_ROWS, bits=bits, seed=seed, out=codes)
            decode_rows(codes, width, bits=bits, out=rows)

        found[bits] = best_seconds(code) / rows.numel()
    return found
