import os
from collections.abc import Callable, Iterator

import pytest
import torch

from .processes import Pool, own_scope

# one thread a process: the suite runs beside its own worker processes
torch.set_num_threads(1)
os.environ.setdefault('OMP_NUM_THREADS', '1')


@pytest.fixture(scope='session')
def processes() -> Iterator[Callable[[int], Pool]]:
    """``processes(2).run(function, *args)``: on two gloo processes."""
    pools: dict[int, Pool] = {}

    def get(size: int) -> Pool:
        if size not in pools or pools[size].broken:
            pools[size] = Pool(size)
        return pools[size]

    yield get
    for pool in pools.values():
        pool.close()


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _own_scope() -> Iterator[None]:
    with own_scope():
        yield
