"""Made-up data for the scripts, and the output with which each script ends."""

import numpy as np

STEPS, BATCH = 12, 8
_numbers = np.random.RandomState(0)
ROWS = _numbers.randn(STEPS, BATCH, 6).astype("float32")
LABELS = (ROWS.sum(2) > 0).astype("int32")
IDS = _numbers.randint(20, size=(STEPS, BATCH, 5))


def share(values, rank, size):
    """Returns a rank's part of each step's batch."""
    part = BATCH // size
    return values[:, rank * part : (rank + 1) * part]


def tell(losses, weights):
    """Prints the mean losses of the first and of the last three steps, and the sums of the weights' cubes."""
    sums = [float(np.sum(np.asarray(weight, "float64") ** 3)) for weight in weights]
    print("said:", *(f"{value:.6f}" for value in [np.mean(losses[:3]), np.mean(losses[-3:]), *sums]))
