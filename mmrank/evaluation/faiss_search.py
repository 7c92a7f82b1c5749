"""The search of faiss-cpu, behind the interface of the retrieval figures."""

from __future__ import annotations

import torch
from torch import Tensor

from mmrank.functional import Search
from mmrank.optional import need


def faiss_index(gallery: Tensor) -> Search:
    """An exact inner-product index, ``faiss.IndexFlatIP``.

    Args:
        gallery (Tensor): shape (G, D), float32, on the CPU.

    Returns:
        Callable: ``search(queries, k)`` for queries (Q, D) gives inner
        products and int64 indices, both (Q, k), largest first; which of equal
        items comes first is open, and -1 fills up where ``k > G``.

    Raises:
        ImportError: where faiss is not installed.
        ValueError: for another dtype or device.

    >>> search = faiss_index(torch.eye(3))
    >>> search(torch.tensor([[0., 2., 1.]]), 2)
    (tensor([[2., 1.]]), tensor([[1, 2]]))
    """
    faiss = need('faiss', "backend='faiss'", 'faiss-cpu',
                 instead="use backend='torch'")
    if gallery.dtype != torch.float32 or gallery.device.type != 'cpu':
        raise ValueError(
            "backend='faiss' searches float32 embeddings on the CPU, but got "
            f"{gallery.dtype} on {gallery.device}: use backend='torch'")
    index = faiss.IndexFlatIP(gallery.shape[1])
    index.add(gallery.numpy())

    def search(queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        values, indices = index.search(queries.numpy(), k)
        return torch.from_numpy(values), torch.from_numpy(indices)

    return search
