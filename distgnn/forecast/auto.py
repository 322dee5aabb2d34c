"""Codes that are chosen while a run trains: `--halo auto`, `--weights auto`.

    before epoch 0      time the link between peers, and the codes
    epochs 2 to N       parts alone, where these have the share C of the edges, of E epochs up to
                        N = min(2 C - 1, 3/4) E
    seconds of codes    work + max(0, wire of rows - hidden) + wire of gradients + codes,
                        of the slowest rank
    hidden              wire of the rows that were sent, less the wait for them
    choice              the fastest, or exact rows or gradients that take at most 5 % longer
    after 2 epochs      choose again, with the work that was seen, also 2 bits of rows
    every K epochs      choose again; time the link again where waits have changed
    after K, 2 K, ...   more epochs with the same codes, score the same weights over exact and over
                        coded rows, and time the link in any case but for the first time

An epoch of parts alone brings as large a share of one on the graph as parts have of the edges.
Where it takes longer than that share after three of them, or the validation metric does not rise by
more than is allowed for two looks, rows travel again.

Codes of rows may change the validation metric by more than is allowed, or say nothing of the rows.
Then more bits are sent from there on, and exact rows in the end. Where the metric stays below its
best by more than that for three looks, all is exact. All ranks decide by the same figures. What was
decided are schedules of codes, such as int4+at(30)+int8. A run with them has the same bits.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch

from distgnn.exchange.base import Synchronous
from distgnn.exchange.codec import EXACT, CodecSpec, HaloCodecs
from distgnn.exchange.rule import Auto, HaloRule, Rule
from distgnn.exchange.tags import EVALUATION_TAG, SETUP_TAG
from distgnn.forecast.pace import Link
from distgnn.forecast.traffic import planned_bytes, planned_weights
from distgnn.kernels.codec import decode_rows, encode_rows, row_bytes
from distgnn.training.config.codecs import halo_text, parse_halo
from distgnn.weights import rule as weights_rule
from distgnn.weights.layout import WIDTH
from distgnn.weights.summed_gradients import SummedGradients

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distgnn.comm.group import Group
    from distgnn.exchange.codec import Bits
    from distgnn.exchange.route import Route
    from distgnn.training.loop.controllers import Record
    from distgnn.training.loop.trainer import Trainer

CHOICES: tuple[Bits, ...] = (32, 16, 8, 4, 2)
"""Bits of a value of a row, the most first."""
WITHIN = 1.05
"""Share of the fastest epoch that one with exact rows or gradients may take."""
MORE_EPOCHS = {2: 1.44}
"""Times the epochs of exact rows that rows of few bits are taken to need: the most of 0.97 to 1.44
times in examples/lab/RESULTS.md. They did not reach one goal of eight there."""
_TRIAL_BYTES = (1 << 18, 1 << 20)
# Shorter messages than this tell little of the link: systems let some through at once.
_LEAST_TRIAL_S = 0.02
_SHORT_ROUNDS = 2
_TRIAL_VALUES = 1 << 16
_MOST_LOOKS_BELOW = 3
_FIRST_LOOK = 2
# Epochs of parts by which these are judged, after one that does what is done once.
_COMPARED = 2
# Share of the longer wait, and of an epoch, by which waits differ where the link may have changed.
_CHANGED = 0.3
_CHANGED_EPOCH = 0.1


class AutoCodes:
    """Chooses the codes of a run between its epochs; see `Controller`.

    Args:
        trainer: Trainer of the run, on more than one rank. Its settings say what is chosen: codes
            of rows, of gradients, or both.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        config = trainer.config
        self._rule = config.given_halo.auto or Auto()
        self._has_rows = config.given_halo.auto is not None
        self._has_weights = config.weight_rule.is_chosen
        self._schedule: list[tuple[int, Bits]] = []
        self._weights: list[tuple[int, Bits]] = []
        self._least: Bits = CHOICES[-1]
        self._is_exact = False
        self._looks_below = 0
        self._best: float | None = None
        # Epoch of the next scores, and how many epochs after it those that follow are due.
        self._scored_next = self._scored_every = self._rule.every
        self._waited_s: float | None = None
        self._records: list[Record] = []
        self._note: str | None = None
        self._sent_at_looks = 0
        self._code_s: dict[Bits, float] = {}
        self._sent: dict[Bits, float] = {}
        self._sum_s: dict[Bits, float] = {}
        self._summed: dict[Bits, float] = {}
        # What sums of gradients took besides, by whether they were coded, once they were made.
        self._late_sums_s: dict[str, float] = {}
        self._hidden_s = 0.0
        self._course = trainer.course
        # A start that was asked for stays as it is.
        self._has_parts = trainer.graphs.parts is not None and not config.quiet_epochs
        # Seconds of epochs before parts, and of those of them, by which the latter are judged.
        self._on_graph_s: list[float] = []
        self._on_parts_s: list[float] = []
        # The metric that has last risen on parts, in which epoch, and how many evaluations ago.
        self._risen: tuple[float, int, int] | None = None
        self._link: Link | None = None
        exact = trainer.graphs.exact
        self._exchange = Synchronous(exact.group, first_tag=EVALUATION_TAG, device=exact.device)
        self._exchange.buffers = exact.exchange.buffers
        self._graph = exact.with_exchange(self._exchange)

    @property
    def bits(self) -> Bits:
        """Bits of a value of a row now; 32 where its codes are not chosen."""
        return self._schedule[-1][1] if self._schedule else CHOICES[0]

    @property
    def weight_bits(self) -> Bits:
        """Bits of a value of a gradient now; 32 where its codes are not chosen."""
        return self._weights[-1][1] if self._weights else CHOICES[0]

    def begin(self) -> None:
        """Measure, and choose the codes of the first epoch; see `Controller`."""
        self._prepare()
        self._choose(0, self._try_link(), None)

    def _prepare(self) -> None:
        """Count what an epoch sends with each code, and how long the codes take."""
        trainer = self._trainer
        config, group = trainer.config, trainer.group
        model = trainer.known_model("--halo auto" if self._has_rows else "--weights auto")
        if self._has_rows:
            for bits in CHOICES:
                self._sent[bits] = planned_bytes(config, model, trainer.graphs, CodecSpec(bits))
            code_s = code_seconds(config.model.hidden_width, trainer.graph.device)
            values = self._sent[CHOICES[0]] / 4
            self._code_s = {bits: values * code_s[bits] for bits in CHOICES}
        if self._has_weights:
            told = planned_weights(config, model, trainer.weights.tables, trainer.graphs)
            code_s = code_seconds(WIDTH, trainer.graph.device)
            # A rank codes its gradients and reads sums, and does both once more with its slice.
            values = 2 * sum(math.prod(shape) for shape in told.shapes)
            for bits in weights_rule.CHOICES:
                one = told._replace(rule=replace(weights_rule.SUM, codec=CodecSpec(bits)))
                self._summed[bits] = one.bytes_of(group.rank, group.size, is_evaluated=False)
                self._sum_s[bits] = values * code_s[bits]

    def observe(self, record: Record) -> None:
        """Look at the link and the metric where that is due; see `Controller`."""
        self._records.append(record)
        epoch = record["epoch"] + 1
        is_on_parts = self._has_parts and record["epoch"] in self._course.quiet
        is_over = is_on_parts and self._is_over(record)
        # Epochs of another start are not looked at.
        first = self._course.quiet.stop
        if self._has_parts and epoch <= first:
            first = self._course.quiet.start if is_on_parts else 0
        self._take_pace(record, is_on_parts=is_on_parts)
        is_due = epoch % self._rule.every == 0
        is_first = epoch - first == _FIRST_LOOK
        if not (is_due or is_over or is_first) or epoch >= self._trainer.config.epochs:
            return
        # The first epoch of a graph has what is done once.
        records = [one for one in self._records if one["epoch"] > first]
        self._records = []
        if not records:
            return
        is_scored = is_due and not is_on_parts and epoch >= self._scored_next
        # Also a link that nobody waits for may have become faster.
        is_changed = is_scored and self._scored_every > self._rule.every
        is_changed |= self._is_changed(records)
        if epoch == self._course.quiet.start:
            # No epoch on parts waits for rows.
            self._waited_s = None
        if is_scored:
            self._scored_every *= 2
            self._scored_next = epoch + self._scored_every
        if is_due and not is_on_parts:
            self._guard(record, is_scored=is_scored)
        before = self._link
        link = self._try_link() if before is None or is_changed else before
        if not (self._sent or self._summed):
            self._prepare()
        work_s = self._work_seconds(records, before or link, link, is_on_parts=is_on_parts)
        if is_over:
            self._course.quiet = range(self._course.quiet.start, epoch)
            self._began_to_send(epoch)
        self._choose(epoch, link, work_s, is_on_parts=is_on_parts and not is_over)
        said = f"halo: rows from epoch {epoch} on" if is_over else None
        if self._has_parts and epoch == self._course.quiet.start:
            most = self._course.quiet.stop
            said = f"halo: parts alone from epoch {epoch} on, until epoch {most} at most"
        self._note = "; ".join(filter(None, (said, self._note))) or None

    def _take_pace(self, record: Record, *, is_on_parts: bool) -> None:
        """Note how long an epoch took, if parts are judged by it."""
        if is_on_parts and record["epoch"] > self._course.quiet.start:
            self._on_parts_s = [*self._on_parts_s[: _COMPARED - 1], record["epoch_s"]]
        elif self._has_parts and 0 < record["epoch"] < self._course.quiet.start:
            self._on_graph_s.append(record["epoch_s"])

    def _is_over(self, record: Record) -> bool:
        """Return whether an epoch is the last one on parts."""
        epoch, quiet = record["epoch"] + 1, self._course.quiet
        if epoch == quiet.stop or self._has_stalled(record):
            return True
        if epoch != quiet.start + 1 + _COMPARED:
            return False
        if not self._on_graph_s:
            # The epoch to compare with ran elsewhere.
            return True
        # Others' work only makes epochs longer.
        least_s = min([*self._on_parts_s, record["epoch_s"]])
        return bool(WITHIN * least_s > self._course.coverage * min(self._on_graph_s))

    def _has_stalled(self, record: Record) -> bool:
        """Return whether the metric has not risen for two looks by more than a code may change."""
        metric, epoch = record.get("val_metric"), record["epoch"]
        if metric is None or not math.isfinite(metric):
            return False
        sign = -1 if self._trainer.objective.measure.is_lower_better else 1
        merit, risen_at, since = sign * metric, epoch, 0
        if self._risen is not None and merit <= self._risen[0] + self._rule.loss:
            merit, risen_at, since = self._risen[0], self._risen[1], self._risen[2] + 1
        self._risen = merit, risen_at, since
        return since > 1 and epoch - risen_at >= 2 * self._rule.every

    def _is_changed(self, records: list[Record]) -> bool:
        """Return whether epochs wait otherwise than those before with the same codes."""
        now = statistics.median(one["exchange_wait_s"] + one["weight_sync_s"] for one in records)
        before, self._waited_s = self._waited_s, now
        if before is None:
            return False
        least_s = _CHANGED_EPOCH * statistics.median(one["epoch_s"] for one in records)
        return bool(abs(now - before) > max(_CHANGED * max(now, before), least_s))

    def _work_seconds(
        self, records: list[Record], before: Link, link: Link, *, is_on_parts: bool
    ) -> float:
        """Return the seconds of epochs but for what was chosen; notes how much wire was hidden.

        Args:
            records: Records of the epochs.
            before: The link when they began.
            link: The link when they had ended.
            is_on_parts: Whether they were those of parts, which send no rows.
        """
        fastest_s, slowest_s = self._wire_seconds(before, link)
        has_rows = self._has_rows and not is_on_parts
        if self._has_weights:
            kind = "exact" if self.weight_bits == CHOICES[0] else "coded"
            seen_s = min(one["weight_sync_s"] for one in records)
            late_s = max(seen_s - self._sums_s(self.weight_bits, link), 0.0)
            # Of the slowest rank, as a checkpoint keeps that of one.
            self._late_sums_s[kind] = _most(self._trainer.group, late_s)[0]
        waits, works = list[float](), list[float]()
        for one in records:
            # Ranks wait for rows, and for slower ranks; more than the wire is the latter.
            wait = min(one["exchange_wait_s"], slowest_s) if has_rows else 0.0
            work = one["epoch_s"] - wait - (one["pack_s"] if has_rows else 0.0)
            if self._has_weights:
                most_s = max(self._sums_s(self.weight_bits, each) for each in (before, link))
                work -= min(one["weight_sync_s"], most_s + self._late_s(self.weight_bits))
            waits.append(wait)
            works.append(work)
        # Few rows tell little of how many could be hidden: what was seen once counts from then on.
        if has_rows:
            self._hidden_s = max(self._hidden_s, fastest_s - statistics.median(waits))
        return max(statistics.median(works), 0.0)

    def _sums_s(self, bits: Bits, link: Link) -> float:
        """Predict the sums of gradients of an epoch, by link and code alone."""
        return link.seconds(self._summed[bits]) + self._sum_s[bits]

    def _late_s(self, bits: Bits) -> float:
        """Return what sums took besides: many messages, and waits for slower ranks.

        Where nobody knows, that of exact sums is none, so that they are tried where codes cost more
        than they save; that of coded ones is as of exact ones.
        """
        exact_s = self._late_sums_s.get("exact", 0.0)
        return exact_s if bits == CHOICES[0] else self._late_sums_s.get("coded", exact_s)

    def _wire_seconds(self, before: Link, link: Link) -> tuple[float, float]:
        """Return the time of the rows of the slowest rank, over the faster and the slower link."""
        if not self._has_rows:
            return 0.0, 0.0
        seconds = [one.seconds(self._sent[self.bits]) for one in (before, link)]
        fastest_s, slowest_s = _most(self._trainer.group, min(seconds), max(seconds))
        return fastest_s, slowest_s

    def _try_link(self) -> Link:
        self._link = try_link(self._trainer.group, self._routes())
        return self._link

    def _choose(
        self, epoch: int, link: Link, work_s: float | None, *, is_on_parts: bool = False
    ) -> None:
        """Choose the codes from an epoch on; None is for work that nobody knows yet."""
        is_known = work_s is not None
        # What few bits save may be little beside the work.
        rows_from = self._allowed_rows(self._least if is_known else max(self._least, 4))
        work_s = work_s or 0.0
        has_rows = self._has_rows and not is_on_parts
        # Rows travel at most as long as there is work, without being waited for.
        hidden_s = min(self._hidden_s, work_s)
        pairs = list(itertools.product(rows_from, self._allowed_weights()))
        seconds = torch.tensor([work_s] * len(pairs), dtype=torch.float64)
        for number, (rows, weights) in enumerate(pairs):
            if has_rows:
                late_s = max(link.seconds(self._sent[rows]) - hidden_s, 0.0)
                seconds[number] += late_s + self._code_s[rows]
            if self._has_weights:
                seconds[number] += self._sums_s(weights, link) + self._late_s(weights)
        self._trainer.group.all_reduce(seconds, "max")
        times = dict(zip(pairs, seconds.tolist(), strict=True))
        rows, weights = choice_of(times)
        exact_s = times.get((CHOICES[0], CHOICES[0]))
        notes = []
        for name, schedule, bits, is_chosen in (
            ("halo", self._schedule, rows, has_rows),
            ("weights", self._weights, weights, self._has_weights),
        ):
            if not is_chosen:
                continue
            if epoch and not schedule:
                schedule.append((0, CHOICES[0]))
            if not schedule or schedule[-1][1] != bits:
                schedule.append((epoch, bits))
                self._began_to_send(epoch)
                words = "sum" if (name, bits) == ("weights", 32) else CodecSpec(bits).text
                notes.append(f"{name}: {words} from epoch {epoch} on")
        if notes:
            self._apply()
            if is_known:
                notes.append(f"{1e3 * times[rows, weights]:.1f} ms an epoch predicted")
            self._note = ", ".join(notes)
            if is_known and exact_s is not None:
                self._note += f"; {1e3 * exact_s:.1f} ms if exact"

    def _began_to_send(self, epoch: int) -> None:
        """Expect other waits and scores from an epoch on."""
        self._waited_s = None
        self._scored_every = self._rule.every
        self._scored_next = epoch + self._scored_every

    def _allowed_rows(self, least: Bits) -> Sequence[Bits]:
        if self._is_exact or not self._has_rows:
            return CHOICES[:1]
        return CHOICES[: CHOICES.index(least) + 1]

    def _allowed_weights(self) -> Sequence[Bits]:
        if self._is_exact or not self._has_weights:
            return CHOICES[:1]
        return weights_rule.CHOICES

    def _apply(self) -> None:
        """Let rows and gradients of training follow the schedules."""
        trainer = self._trainer
        if self._has_rows:
            trainer.graph.exchange.codecs = parse_halo(self.strategy).codecs
        if self._has_weights:
            assert isinstance(trainer.weights, SummedGradients), "auto is a word alone"
            trainer.weights.codec = CodecSpec(self.weight_bits)

    @property
    def strategy(self) -> str:
        """Words of --halo that repeat the run."""
        codecs = [(epoch, CodecSpec(bits)) for epoch, bits in self._schedule] or [(0, EXACT)]
        first = codecs[0][1]
        later = tuple((epoch, HaloCodecs(codec, codec)) for epoch, codec in codecs[1:])
        way = Rule(codec=first)
        return halo_text(HaloRule(forward=way, backward=way, later=later))

    @property
    def weights_strategy(self) -> str:
        """Words of --weights that repeat the run."""
        codecs = [(epoch, CodecSpec(bits)) for epoch, bits in self._weights] or [(0, EXACT)]
        return replace(weights_rule.SUM, codec=codecs[0][1], later=tuple(codecs[1:])).text

    def _guard(self, record: Record, *, is_scored: bool) -> None:
        """Ask for more bits where codes change the metric; collective."""
        if self.bits == self.weight_bits == CHOICES[0]:
            return
        true = seen = record.get("val_metric")
        if is_scored:
            true, seen = self._scores(record)
        is_off = record["codec_error"] >= 1
        if true is not None and seen is not None:
            is_off |= abs(true - seen) > self._rule.loss
            sign = -1 if self._trainer.objective.measure.is_lower_better else 1
            self._best = max(sign * true, self._best if self._best is not None else sign * true)
            is_below = sign * true < self._best - self._rule.loss
            self._looks_below = self._looks_below + 1 if is_below else 0
        if self._looks_below >= _MOST_LOOKS_BELOW:
            self._is_exact = True
        elif is_off and self.bits != CHOICES[0]:
            self._least = CHOICES[CHOICES.index(self.bits) - 1]

    def _scores(self, record: Record) -> tuple[float | None, float | None]:
        """Return the validation metric of the same weights over exact and over coded rows."""
        trainer = self._trainer
        self._exchange.codecs = HaloCodecs(forward=CodecSpec(self.bits))
        with trainer.weights.consensus(trainer.model), trainer.average.in_place():
            # The epoch has scored these weights already, where it was one that is evaluated.
            true = record.get("val_metric") if trainer.config.screening is None else None
            true = trainer.evaluate().metric["val"] if true is None else true
            seen = true
            if self.bits != CHOICES[0]:
                seen = trainer.evaluate_on(self._graph).metric["val"]
        # The record of this epoch is made, and how far models are apart now is none of the next.
        trainer.weights.take_deviation()
        self._sent_at_looks += trainer.weights.take_bytes()
        return true, seen

    def _routes(self) -> list[Route]:
        halves = self._trainer.graphs.exact.blocks.forward
        return [halves.send.route, halves.reduce.route]

    def take_note(self) -> str | None:
        """Return what was changed; see `Controller`."""
        note, self._note = self._note, None
        return note

    def take_bytes(self) -> int:
        """Return the bytes of coded looks, and of the means of models there; see `Controller`."""
        sent, self._sent_at_looks = self._sent_at_looks, 0
        return sent + self._exchange.take_bytes()

    def figures(self) -> dict[str, Any]:
        """Return the words that repeat the run; see `Controller`."""
        rows = {"strategy": self.strategy} if self._has_rows else {}
        if self._has_parts and (quiet := self._course.quiet):
            rows["start_strategy"] = f"parts({quiet.start}:{quiet.stop})"
        return rows | ({"weights_strategy": self.weights_strategy} if self._has_weights else {})

    def state(self) -> dict[str, Any]:
        """Return the schedules and what the next look compares with; see `Controller`."""
        return {
            "schedule": self._schedule,
            "weights": self._weights,
            "least": self._least,
            "is_exact": self._is_exact,
            "looks_below": self._looks_below,
            "best": self._best,
            "scored_next": self._scored_next,
            "scored_every": self._scored_every,
            "hidden_s": self._hidden_s,
            "quiet": [self._course.quiet.start, self._course.quiet.stop],
            "late_sums_s": self._late_sums_s,
            "on_graph_s": self._on_graph_s,
            "on_parts_s": self._on_parts_s,
            "risen": self._risen,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        if self._has_parts:
            self._course.quiet = self._quiet_of(state)
        if not state:
            return
        self._risen = state.get("risen")
        self._on_graph_s = state.get("on_graph_s", [])
        self._on_parts_s = state.get("on_parts_s", [])
        self._late_sums_s = state.get("late_sums_s", {})
        self._schedule, self._weights = (
            [(epoch, cast("Bits", bits)) for epoch, bits in state.get(name, ())]
            for name in ("schedule", "weights")
        )
        self._least, self._best = state["least"], state["best"]
        self._is_exact = state.get("is_exact", False)
        self._scored_next = state.get("scored_next", self._scored_next)
        self._scored_every = state.get("scored_every", self._scored_every)
        self._looks_below, self._hidden_s = state["looks_below"], state["hidden_s"]
        self._apply()

    def _quiet_of(self, state: dict[str, Any]) -> range:
        """Return the epochs on parts of a run that goes on; it may be a shorter one than it was."""
        # A run that began on one rank had the whole graph.
        saved, planned = range(*state.get("quiet", (0, 0))), self._course.quiet
        epoch = self._trainer.num_epochs
        if not saved or epoch >= saved.stop:
            return saved
        stop = max(min(saved.stop, planned.stop), epoch)
        return range(saved.start, stop) if stop > saved.start else range(0)


def choice_of(seconds: dict[tuple[Bits, Bits], float]) -> tuple[Bits, Bits]:
    """Return the codes of the fastest epoch, and none where that takes little longer.

    Codes of 4 bits and more are taken to be equally good: runs with them differed by no more than
    their seeds (examples/strategies/ACCURACY.md).

    Args:
        seconds: Seconds of an epoch by the bits of rows and of gradients.
    """
    to_goal = {pair: time * MORE_EPOCHS.get(pair[0], 1.0) for pair, time in seconds.items()}
    fastest = min(to_goal.values())
    enough = [pair for pair, time in to_goal.items() if time <= WITHIN * fastest]
    # Of rows and gradients, both or one may stay exact; of equal times, most bits.
    return max(
        enough, key=lambda pair: (pair.count(CHOICES[0]), -to_goal[pair], math.prod(pair), pair[0])
    )


def try_link(group: Group, routes: list[Route]) -> Link:
    """Time messages between the peers of a run, all at once; collective.

    Messages grow until they take long enough to tell how fast the link is.

    Args:
        group: All ranks.
        routes: Who gets how many rows; the route with the most of them is tried.

    Returns:
        Speed of the slowest rank, and the time of short messages; the same on every rank.
    """
    sizes = torch.tensor([max(route.num_out, route.num_in) for route in routes])
    group.all_reduce(sizes, "max")
    route, most = routes[int(sizes.argmax())], int(sizes.max())
    out = [(part.stop - part.start, part.peer) for part in route.outgoing]
    into = [(part.stop - part.start, part.peer) for part in route.incoming]
    if not most:
        # No row crosses the cut, but gradients do.
        most, out = 1, [(1, (group.rank + 1) % group.size)]
        into = [(1, (group.rank - 1) % group.size)]
    own = max(sum(count for count, _ in way) for way in (out, into))
    short_s = _seconds_of(group, out, into, 1, _SHORT_ROUNDS)
    long_s, width = short_s, 1
    for num_bytes in _TRIAL_BYTES:
        width = max(num_bytes // most, 8)
        # The messages before were the first ones, which do not count.
        long_s = _seconds_of(group, out, into, width, 1)
        if _most(group, long_s - short_s)[0] >= _LEAST_TRIAL_S:
            break
    # By chance the short message may take longer: then the link would have no limit.
    speed = own * (width - 1) / max(long_s - short_s, long_s / 16) if own else 1e12
    slowest, latency_s = _most(group, -speed, short_s)
    return Link(-slowest, latency_s)


def _most(group: Group, *values: float) -> list[float]:
    """Return the most of any rank, of each of some values; collective."""
    found = torch.tensor(values, dtype=torch.float64)
    group.all_reduce(found, "max")
    return cast("list[float]", found.tolist())


def _seconds_of(
    group: Group,
    out: list[tuple[int, int]],
    into: list[tuple[int, int]],
    width: int,
    num_rounds: int,
) -> float:
    """Time rows of so many bytes, by their number and peer; the shortest of some rounds."""
    sent, received = (
        [(torch.zeros(count, width, dtype=torch.uint8), peer) for count, peer in way]
        for way in (out, into)
    )

    seconds = []
    for _ in range(num_rounds):
        group.barrier()
        start = time.perf_counter()
        for work in group.transfer(received, sent, SETUP_TAG):
            work.wait()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def code_seconds(width: int, device: torch.device) -> dict[Bits, float]:
    """Time codes of rows.

    Args:
        width: Columns of a row.
        device: Where rows are.

    Returns:
        Seconds to write and read a value with each number of bits; 0 for exact rows.
    """
    count = max(_TRIAL_VALUES // width, 1)
    rows = torch.randn(count, width, generator=torch.Generator().manual_seed(0)).to(device)
    found = dict.fromkeys(CHOICES, 0.0)
    for bits in CHOICES[1:]:
        codes = torch.empty(count, row_bytes(width, bits), dtype=torch.uint8, device=device)

        def code(bits: Bits = bits, codes: torch.Tensor = codes) -> None:
            seed = None if bits == 16 else 1
            encode_rows(rows, None, count, bits=bits, seed=seed, out=codes)
            decode_rows(codes, width, bits=bits, out=rows)

        code()
        start = time.perf_counter()
        for _ in range(_SHORT_ROUNDS):
            code()
        # The mean, not the least: ranks that share cores slow each other down, in epochs, too.
        found[bits] = (time.perf_counter() - start) / (_SHORT_ROUNDS * rows.numel())
    return found
