"""Rules of halos: when rows travel, as what, and what is made of those that arrive."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from distgnn.exchange.codec import EXACT, CodecSpec, HaloCodecs
from distgnn.exchange.spared import Gate, Spared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from distgnn.exchange.route import Route, Segment

How = Literal["rows", "peers", "together", "random"]
Remembers = Literal["nothing", "error", "value"]

_MIX = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_WORD = 2**64 - 1
_FIGURE_BYTES = 8


@dataclass(frozen=True)
class Rota:
    """Which rows of a channel have their turn in an epoch; both ends find the same without a word.

    Rows are numbered over all pairs of ranks, and sender and receiver know the numbers. In epoch e
    the bin e mod period has its turn.

    Attributes:
        how: Way in which rows are dealt to bins. Rows are dealt round-robin, so that each bin has
            the same share of all traffic. With peers all rows of a pair of ranks are in one bin, in
            the rounds of a tournament. With together all rows are in the first bins. With random
            each row is drawn by itself, with probability 1 / period in every epoch.
        period: Number of bins; 0 if no row ever travels.
        open_for: Number of bins in which all rows travel, where they do so together.

    References:
        Md et al., SC 2021, for rows; Wan et al., MLSys 2022 (BNS-GCN), for random ones.
    """

    how: How = "rows"
    period: int = 1
    open_for: int = 1

    def __post_init__(self) -> None:
        # Rotas that let the same rows travel are equal, and have one spelling.
        is_never = self.period == 0
        is_always = self.period == 1 or (self.how == "together" and self.open_for >= self.period)
        if is_never or is_always:
            object.__setattr__(self, "how", "rows")
            object.__setattr__(self, "period", 0 if is_never else 1)
        if self.how != "together":
            object.__setattr__(self, "open_for", 1)

    @property
    def first_epochs(self) -> list[int]:
        """First epoch of each turn: the rows of any epoch are those of one of these.

        None of a random deal, which has other rows in each epoch.
        """
        if self.how == "random":
            return []
        if self.how == "together":
            return [0, self.open_for]
        return list(range(max(self.period, 1)))

    def turn_of(self, epoch: int) -> int:
        """Return the number of an epoch's turn among those of `first_epochs`.

        Args:
            epoch: From 0.
        """
        place = epoch % max(self.period, 1)
        return int(place >= self.open_for) if self.how == "together" else place

    @property
    def share(self) -> Fraction:
        """Share of the rows that travels in an epoch, on average."""
        if self.period == 0:
            return Fraction(0)
        return Fraction(self.open_for if self.how == "together" else 1, self.period)

    @property
    def most(self) -> float:
        """Share of the rows that travels in the epoch with the most of them, about."""
        return 1.0 if self.how == "together" and self.period else float(self.share)

    @property
    def is_whole(self) -> bool:
        """Whether all rows travel in every epoch."""
        return self.share == 1

    def rows_of(self, segment: Segment, epoch: int, rank: int, num_ranks: int) -> NDArray[np.int64]:
        """Return the rows of a segment that travel in an epoch.

        Args:
            segment: Rows between this rank and a peer.
            epoch: From 0.
            rank: This rank.
            num_ranks: Number of ranks.

        Returns:
            (num_rows,) int64, ascending. Rows of the packed buffer.
        """
        every = np.arange(segment.start, segment.stop)
        if self.period == 0:
            return every[:0]
        bin_id = epoch % self.period
        if self.how == "rows":
            found = segment.rows_of_bin(bin_id, self.period)
            return np.arange(found.start, found.stop, found.step or 1)
        if self.how == "random":
            first = segment.first_index - segment.start
            return every[self._is_drawn(every + first, epoch)]
        if self.how == "together":
            return every if bin_id < self.open_for else every[:0]
        return (
            every if round_of(rank, segment.peer, num_ranks) % self.period == bin_id else every[:0]
        )

    def rows_between(self, table: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """Count the rows of each pair that travel in an epoch, exactly.

        Args:
            table: (num_ranks, num_ranks) int64. [p][q]: rows between p and q, in the order in which
                they are numbered.
            epoch: From 0.

        Returns:
            (num_ranks, num_ranks) int64.
        """
        if self.period == 0:
            return np.zeros_like(table)
        bin_id = epoch % self.period
        stops = table.cumsum().reshape(table.shape)
        if self.how == "rows":
            before, until = (-((bin_id - ends) // self.period) for ends in (stops - table, stops))
            return until - before
        if self.how == "random":
            drawn = np.zeros(int(table.sum()) + 1, np.int64)
            drawn[1:] = self._is_drawn(np.arange(len(drawn) - 1), epoch).cumsum()
            found: NDArray[np.int64] = drawn[stops] - drawn[stops - table]
            return found
        if self.how == "together":
            return table if bin_id < self.open_for else np.zeros_like(table)
        return np.where(self._bins_of_pairs(len(table)) == bin_id, table, 0)

    def _bins_of_pairs(self, num_ranks: int) -> NDArray[np.int64]:
        """Return the bin in which all rows of each pair travel, of peers; -1 of no pair."""
        every = range(num_ranks)
        rounds = [[round_of(p, q, num_ranks) if p != q else -1 for q in every] for p in every]
        found = np.array(rounds, np.int64)
        return np.where(found >= 0, found % self.period, -1)

    def turns_between(self, epochs: Sequence[int], num_ranks: int) -> NDArray[np.float64]:
        """Count how often all rows of each pair travel in some epochs.

        Args:
            epochs: Epochs that count, such as those that are no refresh.
            num_ranks: Number of ranks.

        Returns:
            (num_ranks, num_ranks) float64: exactly where a pair has all or no rows in an epoch, on
            average where each row has a turn of its own.
        """
        shape = (num_ranks, num_ranks)
        if self.how not in ("together", "peers") or not self.period:
            return np.full(shape, len(epochs) * float(self.share))
        of_bin = np.bincount(np.asarray(epochs, np.int64) % self.period, minlength=self.period)
        if self.how == "together":
            return np.full(shape, float(of_bin[: self.open_for].sum()))
        bins = self._bins_of_pairs(num_ranks)
        return np.where(bins >= 0, of_bin[bins], 0).astype(np.float64)

    def num_rows(self, table: NDArray[np.int64], epoch: int) -> int:
        """Count the rows of all pairs that travel in an epoch, exactly; see `rows_between`."""
        return int(self.rows_between(table, epoch).sum())

    def _is_drawn(self, numbers: NDArray[np.int64], epoch: int) -> NDArray[np.bool_]:
        """Draw by a hash of the row's number and the epoch, which is the same at both ends."""
        mixed = numbers.astype(np.uint64) * np.uint64(_MIX[0])
        mixed += np.uint64((epoch + 1) * _MIX[2] & _WORD)
        mixed ^= mixed >> np.uint64(30)
        mixed *= np.uint64(_MIX[1])
        mixed ^= mixed >> np.uint64(27)
        mixed *= np.uint64(_MIX[2])
        mixed ^= mixed >> np.uint64(31)
        return np.asarray((mixed >> np.uint64(11)) * 2.0**-53 < 1 / self.period)


def round_of(one: int, other: int, num_ranks: int) -> int:
    """Return the round of a tournament in which two ranks meet, by the circle method.

    Args:
        one: A rank.
        other: Another rank.
        num_ranks: Number of ranks.
    """
    num_rounds = num_ranks - 1 + num_ranks % 2
    last = num_rounds  # the player who stays in place; nobody where the number of ranks is odd
    if last in (one, other):
        return 2 * min(one, other) % num_rounds
    return (one + other) % num_rounds


@dataclass(frozen=True, kw_only=True)
class Rule:
    """When rows of one direction of the pass travel, as what, and what becomes of them.

    Attributes:
        deal: Rows that have their turn in an epoch.
        delay: Epochs between sending and first use; at least 0.
        refresh: Number of epochs after which all rows travel as they are, and are used at once; 0
            for never.
        is_cached: Whether a row keeps its last value between its turns; the paper's rule is that
            it contributes only in the epoch in which it arrives.
        smoothing: In [0, 1). Share of a row's average that stays when a new value arrives; the
            average is corrected for its start, so that the first value counts in full.
        is_scaled: Whether rows that travel are multiplied by the period, for those that do not.
        codec: Code that rows are written in.
        remembers: Memory of the sender's code. "error": what the last code of a row missed is added
            before the next. "value": the change against what the receiver has is coded.
        spared: Rows of a turn that do not travel after all; None if all of them do.
        gate: Epochs in which rows travel, by a vote; None if they do not vote.
        has_trend: Whether a row moves on, in each epoch, by what it changed in an epoch between the
            last two in which all rows travelled as they are.

    References:
        Wan et al., "PipeGCN", ICLR 2022, for smoothing; Wan et al., "BNS-GCN", MLSys 2022, for
        scaling; Zhang et al., "Sylvie", arXiv:2303.01277, and Seide et al., Interspeech 2014, for
        errors that are fed back; Song et al., "EC-Graph", ICDE 2022, for trends.
    """

    deal: Rota = field(default_factory=Rota)
    delay: int = 0
    refresh: int = 0
    is_cached: bool = True
    smoothing: float = 0.0
    is_scaled: bool = False
    codec: CodecSpec = EXACT
    remembers: Remembers = "nothing"
    spared: Spared | None = None
    gate: Gate | None = None
    has_trend: bool = False

    @property
    def keeps_rows(self) -> bool:
        """Whether anything lives between epochs; then a checkpoint holds rows."""
        is_current = self.deal.is_whole and self.delay == 0 and not self.is_by_value
        return not is_current or self.remembers != "nothing" or self.smoothing > 0

    @property
    def is_by_value(self) -> bool:
        """Whether values of rows decide which of them travel, or when."""
        return self.spared is not None or self.gate is not None

    @property
    def is_counted(self) -> bool:
        """Whether the bytes that travel are known before; else only how many they are at most."""
        return self.gate is None and (self.spared is None or self.spared.is_counted)

    @property
    def limit(self) -> float:
        """Budget of rows, as a share of the bytes of all; 0 for none."""
        return 0.0 if self.spared is None else self.spared.limit

    @property
    def num_figures(self) -> int:
        """Number of figures that each rank shares at the end of an epoch; see `votes`."""
        return (self.gate is not None) + 3 * bool(self.limit)

    @property
    def tells_values(self) -> bool:
        """Whether a sender keeps the values that its receivers have."""
        return self.spared is not None or self.remembers == "value"

    @property
    def share(self) -> Fraction:
        """Share of the rows that travels in an epoch, on average and at most."""
        return self.deal.share * (1 if self.spared is None else self.spared.share)


@dataclass(frozen=True)
class Auto:
    """Codes that are chosen while the run trains, from what it measures.

    Attributes:
        loss: Largest difference of the validation metric that a code may make.
        every: Epochs from one look at the link and the metric to the next.
        may_start: Whether the first epochs may train on each part alone.
    """

    loss: float = 0.005
    every: int = 10
    may_start: bool = True


@dataclass(frozen=True, kw_only=True)
class HaloRule:
    """A rule for each direction of the pass, after synchronous epochs.

    Attributes:
        forward: Rule of features and partial sums.
        backward: Rule of gradients.
        warm_up_epochs: Number of epochs at the start in which all rows travel as they are, and are
            used at once.
        later: Codecs that take over in an epoch, of rows that travel in every epoch; by epoch.
        auto: How codes are chosen while the run trains; None where the rule says all.
    """

    forward: Rule = field(default_factory=Rule)
    backward: Rule = field(default_factory=Rule)
    warm_up_epochs: int = 0
    later: tuple[tuple[int, HaloCodecs], ...] = ()
    auto: Auto | None = None

    def of(self, *, is_backward: bool) -> Rule:
        """Return the rule of one direction."""
        return self.backward if is_backward else self.forward

    @property
    def codecs(self) -> HaloCodecs:
        """Codecs of both directions."""
        return HaloCodecs(self.forward.codec, self.backward.codec, self.later)

    @property
    def is_synchronous(self) -> bool:
        """Whether every epoch is like the first: all rows travel, and are used at once."""
        either = (self.forward, self.backward)
        has_other_epochs = self.warm_up_epochs > 0 or any(rule.refresh for rule in either)
        is_coded = any(rule.codec != EXACT for rule in either)
        return not any(rule.keeps_rows for rule in either) and not (has_other_epochs and is_coded)

    @property
    def is_adaptive(self) -> bool:
        """Whether the bits of codes follow the rows."""
        return self.codecs.is_adaptive

    @property
    def sends_at_most(self) -> bool:
        """Whether forecasts are a bound, as what is measured decides how many bytes travel."""
        is_counted = self.forward.is_counted and self.backward.is_counted
        return self.is_adaptive or self.auto is not None or not is_counted

    @property
    def plain(self) -> HaloRule:
        """The same rule with the same bits in every row."""
        forward, backward = (
            replace(way, codec=way.codec.plain) for way in (self.forward, self.backward)
        )
        return replace(self, forward=forward, backward=backward)

    @property
    def keeps_state(self) -> bool:
        """Whether the exchange keeps something between epochs, which a checkpoint holds."""
        return not self.is_synchronous or self.is_adaptive

    @property
    def delay(self) -> int:
        """Longest delay of a direction."""
        return max(self.forward.delay, self.backward.delay)

    @property
    def num_bins(self) -> int:
        """Longest period of a direction in which every row has its turn; at least 1."""
        return max(self.forward.deal.period, self.backward.deal.period, 1)

    @property
    def period(self) -> int:
        """Epochs after which the rows that travel are those of the beginning again."""
        either = (self.forward, self.backward)
        return math.lcm(*(max(n, 1) for rule in either for n in (rule.deal.period, rule.refresh)))

    def is_whole(self, epoch: int, *, is_backward: bool) -> bool:
        """Whether all rows of a direction travel as they are in an epoch, and are used at once.

        Args:
            epoch: From 0.
            is_backward: Whether the rows are gradients.
        """
        refresh = self.of(is_backward=is_backward).refresh
        return epoch < self.warm_up_epochs or (refresh > 0 and epoch % refresh == 0)

    def epochs_since_whole(self, epoch: int, *, is_backward: bool) -> int:
        """Count the epochs since the last one before it in which all rows travelled as they are.

        Args:
            epoch: From 0.
            is_backward: Whether the rows are gradients.

        Returns:
            At least 1; 0 if there was none.
        """
        refresh = self.of(is_backward=is_backward).refresh
        last = min(self.warm_up_epochs, epoch) - 1
        if refresh and epoch:
            last = max(last, (epoch - 1) // refresh * refresh)
        return epoch - last if last >= 0 else 0

    def num_rows(self, table: NDArray[np.int64], epoch: int, *, is_backward: bool) -> int:
        """Count the rows of all pairs that travel in an epoch, at most; exactly where counted.

        Args:
            table: (num_ranks, num_ranks) int64. [p][q]: rows from p to q.
            epoch: From 0.
            is_backward: Whether the rows are gradients.
        """
        if self.is_whole(epoch, is_backward=is_backward):
            return int(table.sum())
        way = self.of(is_backward=is_backward)
        counts = way.deal.rows_between(table, epoch)
        return int((counts if way.spared is None else way.spared.most_rows(counts)).sum())

    def mask_bytes(self, table: NDArray[np.int64], epoch: int, *, is_backward: bool) -> int:
        """Return the bytes of an epoch that say which rows travel; 0 where both ends know.

        Args:
            table: (num_ranks, num_ranks) int64. [p][q]: rows from p to q.
            epoch: From 0.
            is_backward: Whether the rows are gradients.
        """
        way = self.of(is_backward=is_backward)
        if way.spared is None or self.is_whole(epoch, is_backward=is_backward):
            return 0
        return int((-(-way.deal.rows_between(table, epoch) // 8)).sum())

    @property
    def vote_bytes(self) -> int:
        """Bytes of an epoch by which a rank tells another one what decides about the next."""
        return (self.forward.num_figures + self.backward.num_figures) * _FIGURE_BYTES

    def codec_in(self, epoch: int, *, is_backward: bool) -> CodecSpec:
        """Return the code of the rows that travel in an epoch.

        Args:
            epoch: From 0.
            is_backward: Whether the rows are gradients.
        """
        if not self.is_synchronous and self.is_whole(epoch, is_backward=is_backward):
            return EXACT
        return self.codecs.at(epoch).of(is_backward=is_backward)

    def codec_shares(
        self, num_epochs: int, *, is_backward: bool
    ) -> list[tuple[CodecSpec, Fraction]]:
        """Return the codes of a run that follow each other, with their shares of its epochs.

        Args:
            num_epochs: Epochs of the run; 0 for a run without training.
            is_backward: Whether the rows are gradients.
        """
        last = max(num_epochs, 1)
        firsts = [0, *(min(first, last) for first, _ in self.later), last]
        lengths = (Fraction(stop - start, last) for start, stop in pairwise(firsts))
        codecs = (self.codecs, *(codecs for _, codecs in self.later))
        return [
            (one.of(is_backward=is_backward), length)
            for one, length in zip(codecs, lengths, strict=True)
        ]

    def whole_fraction(self, num_epochs: int, *, is_backward: bool) -> Fraction:
        """Return the share of a run's epochs in which all rows of a direction travel as they are.

        Args:
            num_epochs: Epochs of the run; 0 for a run without training.
            is_backward: Whether the rows are gradients.
        """
        refresh, warm_up = self.of(is_backward=is_backward).refresh, self.warm_up_epochs
        first = min(warm_up, num_epochs)
        # Multiples of the period of a refresh in [first, num_epochs).
        later = -(-num_epochs // refresh) - -(-first // refresh) if refresh else 0
        return Fraction(first + later, max(num_epochs, 1))

    def num_sent(
        self, route: Route, epoch: int, rank: int, num_ranks: int, *, is_backward: bool
    ) -> int:
        """Count the rows that a rank sends along a route in an epoch.

        Args:
            route: One half of an exchange.
            epoch: From 0.
            rank: The rank.
            num_ranks: Number of ranks.
            is_backward: Whether the rows are gradients.
        """
        if self.is_whole(epoch, is_backward=is_backward):
            return route.num_out
        deal = self.of(is_backward=is_backward).deal
        return sum(len(deal.rows_of(part, epoch, rank, num_ranks)) for part in route.outgoing)


def delayed(
    *,
    num_bins: int = 1,
    delay: int = 0,
    warm_up_epochs: int = 0,
    forward: tuple[bool, float] = (True, 0.0),
    backward: tuple[bool, float] = (True, 0.0),
) -> HaloRule:
    """Return the rule of cd-R: rows are dealt to bins, and used some epochs after they were sent.

    Args:
        num_bins: Number of bins; at least 1.
        delay: Epochs between sending and first use.
        warm_up_epochs: Number of synchronous epochs at the start.
        forward: Whether features and partial sums are cached, and their smoothing.
        backward: The same of gradients.

    References:
        Md et al., "DistGNN", SC 2021, section 5.3, algorithm 4.
    """
    deal = Rota(period=num_bins)
    rules = (
        Rule(deal=deal, delay=delay, is_cached=is_cached, smoothing=smoothing)
        for is_cached, smoothing in (forward, backward)
    )
    return HaloRule(forward=next(rules), backward=next(rules), warm_up_epochs=warm_up_epochs)
