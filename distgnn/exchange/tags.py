"""First tags of exchanges that live at the same time, which keep their messages apart.

Training begins at 0. A model with 250 aggregations uses 1000 channels in an epoch.
"""

MAX_CHANNELS = 1 << 12
"""Channels whose messages have tags of their own, from the first tag of an exchange on."""
EVALUATION_TAG = MAX_CHANNELS
SETUP_TAG = 1 << 13
"""For rows that travel once."""
LINK_TAG = 3 << 12
"""For the ends of links in training."""
LINK_EVALUATION_TAG = 7 << 11
"""For the ends of links in evaluation."""
WEIGHTS_TAG = 1 << 14
"""For what optimizers send from rank to rank."""
GRADIENTS_TAG = 5 << 12
"""For gradients that are coded."""
