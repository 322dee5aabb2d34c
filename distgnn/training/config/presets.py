"""Presets: published systems as words of --halo and --weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Preset:
    """Strategies of both channels under one name.

    Attributes:
        halo: Words of --halo.
        weights: Words of --weights.
        about: Sentence on what they do.
        paper: Publication that they follow; empty for exact training.
        settings: Other settings of the run that belong to it, by name; their flags are declared
            with `in_presets`.
    """

    halo: str
    weights: str
    about: str
    paper: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


_SHADOW = (
    "Zheng et al., ShadowSync: Performing Synchronization in the Background for Highly Scalable "
    "Distributed Training, arXiv:2003.03477"
)
_DS_SYNC = (
    "Wang et al., DS-Sync: Addressing Network Bottlenecks with Divide-and-Shuffle "
    "Synchronization for Distributed DNN Training, INFOCOM 2022"
)

PRESETS: Mapping[str, Preset] = {
    "bsp": Preset(
        "exact",
        "sum",
        "rows and gradients travel as they are, in every step",
        settings={"algorithm": "cd-0"},
    ),
    "bytegrad": Preset(
        "int8(round=near)",
        "int8(round=near)",
        "8 bits a value between the least and the largest of its row, rounded to the nearest",
        "Gan et al., BAGUA: Scaling up Distributed Learning with System Relaxations, VLDB 2021",
    ),
    "cgx": Preset(
        "int4",
        "int4",
        "4 bits a value between the least and the largest of its row, rounded at random",
        "Markov et al., CGX: Adaptive System Support for Communication-Efficient Deep Learning, "
        "Middleware 2022",
    ),
    "adaqp": Preset(
        "adapt(2|4|8,every=50,bits=4)",
        "sum",
        "2, 4 or 8 bits a value by the ranges of rows, in at most the bytes of 4",
        "Wan et al., Adaptive Message Quantization and Parallelization for Distributed Full-graph "
        "GNN Training, MLSys 2023",
    ),
    "cgx-adaptive": Preset(
        "adapt(2|4|8,every=50,bits=4,by=layer)",
        "int4",
        "2, 4 or 8 bits a value, layer by layer, in at most the bytes of 4",
        "Markov et al., CGX: Adaptive System Support for Communication-Efficient Deep Learning, "
        "Middleware 2022",
    ),
    "pipegcn": Preset(
        "warmup(20)+delay(1)+smooth(0.5)",
        "sum",
        "rows are used one epoch after they were made, as averages, so that nobody waits",
        "Wan et al., PipeGCN: Efficient Full-Graph Training of Graph Convolutional Networks with "
        "Pipelined Feature Communication, ICLR 2022",
    ),
    "sylvie": Preset(
        "refresh(10)+int1+feedback",
        "sum",
        "1 bit a value, whose error is added to the next row; every tenth epoch is exact",
        "Zhang et al., Boosting Distributed Full-graph GNN Training with Asynchronous One-bit "
        "Communication, arXiv:2303.01277",
    ),
    "sylvie-a": Preset(
        "delay(1)+refresh(10)+int1+feedback",
        "sum",
        "as sylvie, and rows are used one epoch after they were made",
        "Zhang et al., Boosting Distributed Full-graph GNN Training with Asynchronous One-bit "
        "Communication, arXiv:2303.01277",
    ),
    "digest": Preset(
        "fwd:every(10)+bwd:never",
        "sum",
        "rows travel in every tenth epoch, and no gradient crosses the cut",
        "Chai et al., Distributed Graph Neural Network Training with Periodic Stale Representation "
        "Synchronization, arXiv:2206.00057",
    ),
    "ds-sync": Preset(
        "bins(4,deal=peers)",
        "sum",
        "pairs of ranks tell each other their rows in turns, in the rounds of a tournament",
        _DS_SYNC,
    ),
    "gaia": Preset(
        "changed(0.05,decay=sqrt)",
        "sum",
        "rows travel that changed by 5 percent since they were sent, by less in later epochs",
        "Hsieh et al., Gaia: Geo-Distributed Machine Learning Approaching LAN Speeds, NSDI 2017",
    ),
    "cdfgnn": Preset(
        "changed(0.05)+int8",
        "sum",
        "rows travel that changed by 5 percent since they were sent, with 8 bits a value",
        "Zhang et al., CDFGNN: a Systematic Design of Cache-based Distributed Full-Batch Graph "
        "Neural Network Training with Communication Reduction, arXiv:2408.00232",
    ),
    "selsync": Preset(
        "gate(0.05,vote=mean)",
        "sum",
        "all rows travel in epochs in which those of the ranks changed by 5 percent on average",
        "Tyagi and Swany, Accelerating Distributed ML Training via Selective Synchronization, "
        "CLUSTER 2023",
    ),
    "sancus": Preset(
        "gate(0.05,most=10)+bf16",
        "sum",
        "all rows travel once those of a rank changed by 5 percent, or are 10 epochs old",
        "Peng et al., SANCUS: Staleness-Aware Communication-Avoiding Full-Graph Decentralized "
        "Training in Large-Scale Graph Neural Networks, VLDB 2022",
    ),
    "ec-graph": Preset(
        "fwd:changed(0.1)+refresh(10)+int4+trend+bwd:refresh(10)+int4+feedback",
        "sum",
        "rows move on by their trend, and travel with 4 bits a value where it errs by 10 percent",
        "Song et al., EC-Graph: A Distributed Graph Neural Network System with Error-Compensated "
        "Compression, ICDE 2022",
    ),
    "varco": Preset(
        "int1+at(20)+int2+at(40)+int4+at(60)+int8",
        "sum",
        "1 bit a value at first, and twice as many after every 20 epochs",
        "Cervino et al., Distributed Training of Large Graph Neural Networks with Variable "
        "Communication Rates, arXiv:2406.17611",
    ),
    "bns": Preset(
        "bins(10,deal=random)+drop+scale",
        "sum",
        "a tenth of the rows, drawn in every epoch, stands for all of them",
        "Wan et al., BNS-GCN: Efficient Full-Graph Training of Graph Convolutional Networks with "
        "Partition-Parallelism and Random Boundary Node Sampling, MLSys 2022",
    ),
    "cofree": Preset(
        "exact",
        "sum",
        "no row travels; vertices count by the share of their in-edges that their part has",
        "Cao et al., Communication-Free Distributed GNN Training with Vertex Cut, arXiv:2308.03209",
        {"algorithm": "0c", "reweight_loss": True},
    ),
    "grappa": Preset(
        "exact",
        "sum",
        "no row travels; vertices count the more, the fewer of their in-edges their part has; with "
        "--cuts the cut changes, too",
        "Xu et al., Grappa: Gradient-Only Communication for Scalable Graph Neural Network "
        "Training, arXiv:2602.01872",
        {"algorithm": "0c", "coverage_correction": 0.5},
    ),
    "decentralized": Preset(
        "exact",
        "every(1)+pairs+mean",
        "each rank steps by itself, and random pairs of ranks take the means of their models",
        "Gan et al., BAGUA: Scaling up Distributed Learning with System Relaxations, VLDB 2021",
    ),
    "lowprec-decentralized": Preset(
        "exact",
        "every(1)+ring+int8(round=near)+mean+own-moments",
        "each rank steps by itself, and tells two neighbors in a ring changes of its model in 8 "
        "bits a value",
        "Gan et al., BAGUA: Scaling up Distributed Learning with System Relaxations, VLDB 2021",
    ),
    "qadam": Preset(
        "exact",
        "qadam(20)+int8(round=near)",
        "Adam for 20 steps; then its first moment is summed in 8 bits a value, while the second "
        "rests",
        "Gan et al., BAGUA: Scaling up Distributed Learning with System Relaxations, VLDB 2021",
    ),
    "async-average": Preset(
        "exact",
        "every(2)+lag(2)+corrected",
        "each rank steps by itself, and adds by how much the mean of models was ahead 2 steps ago",
        "Gan et al., BAGUA: Scaling up Distributed Learning with System Relaxations, VLDB 2021",
    ),
    "shadow-easgd": Preset(
        "exact",
        "every(2)+lag(2)+elastic(0.5)",
        "each rank steps by itself, and models and a center draw towards each other 2 steps late",
        _SHADOW,
    ),
    "shadow-ma": Preset(
        "exact",
        "every(2)+lag(2)+lerp(0.5)",
        "each rank steps by itself, and goes half of the way to the mean of models 2 steps ago",
        _SHADOW,
    ),
    "shadow-bmuf": Preset(
        "exact",
        "every(2)+lag(2)+momentum(0.5,rate=1,share=0.5)",
        "each rank steps by itself, and goes half of the way to a mean that moves with momentum",
        _SHADOW,
    ),
    "ds-sync-weights": Preset(
        "exact",
        "every(1)+groups(4)+mean",
        "each rank steps by itself, and random groups of ranks take the means of their models",
        _DS_SYNC,
    ),
    "ds-sync-tournament": Preset(
        "exact",
        "every(1)+groups(2,order=tournament)+mean",
        "each rank steps by itself, and pairs of ranks, all in turns, take the means of their "
        "models",
        _DS_SYNC,
    ),
    "ds-sync-grid": Preset(
        "exact",
        "every(1)+groups(2,order=grid)+mean",
        "each rank steps by itself, and rows and columns of a grid take the means of their models",
        _DS_SYNC,
    ),
    "llcg": Preset(
        "every(8)+drop",
        "every(8,for=1)+mean",
        "ranks step by themselves and without each other's rows, and correct their mean together "
        "in every eighth step",
        "Ramezani et al., Learn Locally, Correct Globally: A Distributed Algorithm for Training "
        "Graph Neural Networks, ICLR 2022",
    ),
    "qsparse-local": Preset(
        "delay(1)+int8",
        "every(4)+int8+mean",
        "each rank steps by itself, and tells how its model changed in 8 bits a value every four "
        "steps; rows come one epoch late, so that nobody waits in the steps between",
        "Basu et al., Qsparse-local-SGD: Distributed SGD with Quantization, Sparsification, and "
        "Local Computations, NeurIPS 2019",
    ),
    "skewscout": Preset(
        "exact",
        "every(4)+mean+travel(20)",
        "each rank steps by itself, and the steps between means move by the accuracy that models "
        "lose on vertices of other ranks",
        "Hsieh et al., The Non-IID Data Quagmire of Decentralized Machine Learning, ICML 2020",
    ),
    "selsync-weights": Preset(
        "exact",
        "changed-gradient(0.05)+mean",
        "each rank steps by itself, and models become their mean once a gradient changes",
        "Tyagi and Swany, Accelerating Distributed ML Training via Selective Synchronization, "
        "CLUSTER 2023",
    ),
    "gaia-weights": Preset(
        "exact",
        "changed(0.01,decay=sqrt)+sum",
        "ranks tell each other values of gradients that move a weight by 1 percent, or less later",
        "Hsieh et al., Gaia: Geo-Distributed Machine Learning Approaching LAN Speeds, NSDI 2017",
    ),
}
"""Presets by name, in the order of the help."""


_NOTHING = {"halo": "exact", "weights": "sum"}


def names_of(channel: Literal["halo", "weights"]) -> dict[str, str]:
    """Return the words of one channel by the name of the preset that is whole in these.

    Args:
        channel: Flag of the words.
    """
    silent = silent_in(channel)
    return {name: getattr(PRESETS[name], channel) for name in _IN_WORDS if name not in silent}


def silent_in(channel: Literal["halo", "weights"]) -> frozenset[str]:
    """Return the names of presets that leave one channel as it is, and so say nothing there.

    Args:
        channel: Flag of the words.
    """
    return frozenset(
        name
        for name in _IN_WORDS
        # That both channels are plain is all that bsp says.
        if name != "bsp" and getattr(PRESETS[name], channel) == _NOTHING[channel]
    )


# The algorithm of bsp is the one without delays, which has words of both channels alone.
_IN_WORDS = [
    name for name, preset in PRESETS.items() if preset.settings in ({}, {"algorithm": "cd-0"})
]
