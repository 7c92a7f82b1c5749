"""Which of mmdet's heads can honour a ranking loss, checked at build time.

A ranking loss ranks everything it is given in one call against each other,
and what it is given depends on the head: some call their ``loss_cls`` once a
pyramid level, some once a decoder layer, some want a loss for each sample or
pass soft targets. None of that fails by itself; it trains something else than
the loss says. So the moment a head takes a ranking loss as its ``loss_cls``
the pair is checked, and refused with a message that says what to write
instead. The rules name mmdet's classes as text: this module needs no mmdet.
"""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.module import register_module_module_registration_hook

from mmrank.models.losses.ranking_loss import RankingLoss

_PER_LEVEL = ('calls its loss once a pyramid level, and AP within each level '
              'is not AP; use mmrank.RankRetinaHead, mmrank.RankATSSHead, '
              'mmrank.RankRPNHead, or derive from the head together with '
              'OneRankingMixin of mmrank.models.heads.detection.dense')
_UNKNOWN = ('is not known to give its loss all levels in one call; derive '
            'from it together with OneRankingMixin of '
            'mmrank.models.heads.detection.dense if it calls its loss '
            'once a level')
_SHARED = ('lets all decoder layers share one loss, hence one memory; use '
           'mmrank.RankDETRHead, mmrank.RankDeformableDETRHead, '
           'mmrank.RankDINOHead, ... or memory_batches=0')
_SOFT = 'trains scores towards soft quality targets, which rank nothing'
_PER_SAMPLE = 'needs one loss value for each sample, and AP has none'
_OWN = 'computes its classification loss itself and never calls loss_cls as ' \
    'a ranking needs it'
_SOFTMAX = 'reads its scores through a softmax and never asks the loss'

# The first class of a head's method resolution order that stands here
# decides. '' accepts; anything else is the reason of the refusal. Those in
# MENDED do not hold for heads that state ``ranks_in_one_call = True``.
RULES: dict[str, str] = {
    # two-stage: one call with all proposals of the batch
    'BBoxHead': '',
    'SABLHead': _SOFTMAX,
    'MultiInstanceBBoxHead': _PER_SAMPLE,
    'SCNetBBoxHead': '',
    # dense heads that join the levels before the loss
    'FCOSHead': '',
    'FoveaHead': '',
    'YOLOFHead': '',
    # dense heads that do not
    'AnchorHead': _PER_LEVEL,
    'AnchorFreeHead': _UNKNOWN,
    'RetinaHead': _PER_LEVEL,
    'ATSSHead': _PER_LEVEL,
    'RPNHead': _PER_LEVEL,
    'GFLHead': _SOFT,
    'VFNetHead': _SOFT,
    'TOODHead': _SOFT,
    'RTMDetHead': _SOFT,
    'RTMDetSepBNHead': _SOFT,
    'YOLOXHead': _SOFT,
    'PAAHead': _PER_SAMPLE,
    'FSAFHead': _PER_SAMPLE,
    'PISARetinaHead': _PER_SAMPLE,
    'FreeAnchorRetinaHead': _OWN,
    'AutoAssignHead': _OWN,
    'YOLACTHead': _PER_SAMPLE,
    'MaskFormerHead': _SOFTMAX,
    # query-based: one call a decoder layer
    'DETRHead': _SHARED,
    'GroundingDINOHead': 'scores text tokens instead of classes',
    'EmbeddingRPNHead': _OWN,
}
MENDED = (_PER_LEVEL, _UNKNOWN, _SHARED)


def bind(head: nn.Module, loss: RankingLoss) -> None:
    """Check that ``head`` can honour ``loss``, and fit the two together.

    Args:
        head (nn.Module): the head that takes the loss as its ``loss_cls``.
        loss (RankingLoss): the ranking loss.

    Raises:
        ValueError: if the head cannot honour the loss, reads the config's
            ``use_sigmoid`` otherwise than the loss does, or has another
            number of classes.
    """
    rule = _rule(head)
    if rule is None:
        return
    reason = rule
    if reason == _SHARED and loss.memory_batches == 0:
        reason = ''
    if reason:
        raise ValueError(
            f'{type(head).__name__} cannot be trained with '
            f'{type(loss).__name__}: it {reason}. docs/detectors.md lists '
            'the heads that can.')
    _check_convention(head, loss)
    if loss.num_classes not in (None, head.num_classes):
        raise ValueError(
            f'{type(loss).__name__} was told '
            f'num_classes={loss.num_classes}, but its '
            f'head {type(head).__name__} has num_classes={head.num_classes}')
    head._register_load_state_dict_pre_hook(
        fold_background_row, with_module=True)
    if not _is(head, 'BBoxHead'):
        # a dense head reads scores without a background column, which it
        # makes itself from its own ``use_sigmoid_cls``
        loss.custom_cls_channels = False


def fold_background_row(head: nn.Module, state_dict: dict[str, Tensor],
                        prefix: str, *unused: Any) -> None:
    """Turn a softmax classifier of C + 1 rows into one of C rows.

    A load-state-dict pre-hook of box heads and of DETR's head. mmdet's heads
    for cross-entropy have a row for the background, the last one; a sigmoid
    head has none. The row is subtracted from the others, so that each class
    keeps its log-odds against the background, ``z_c - z_background``, and
    nothing else of the checkpoint is touched.

    Args:
        head (nn.Module): the head; others than those with a linear
            ``fc_cls`` are left as they are.
        state_dict (dict): the checkpoint's, changed in place.
        prefix (str): the head's prefix in it.

    Example:
        >>> import torch
        >>> head = nn.Module()
        >>> head.num_classes, head.fc_cls = 2, nn.Linear(1, 2, bias=False)
        >>> state = {'fc_cls.weight': torch.tensor([[5.], [1.], [2.]])}
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter('ignore')
        ...     fold_background_row(head, state, '')
        >>> state['fc_cls.weight'].tolist()
        [[3.0], [-1.0]]
    """
    weight = state_dict.get(f'{prefix}fc_cls.weight')
    mine = getattr(getattr(head, 'fc_cls', None), 'weight', None)
    if weight is None or mine is None:
        return
    if weight.shape[0] != mine.shape[0] + 1 \
            or mine.shape[0] != head.num_classes:
        return
    for name in ('weight', 'bias'):
        rows = state_dict.get(f'{prefix}fc_cls.{name}')
        if rows is not None:
            state_dict[f'{prefix}fc_cls.{name}'] = rows[:-1] - rows[-1:]
    warnings.warn(
        f'{prefix}fc_cls: the checkpoint has a background row and this head '
        'has none; the row was subtracted from the others, so every score '
        'is the log-odds against the background', stacklevel=2)


def _check_convention(head: nn.Module, loss: RankingLoss) -> None:
    """mmdet's other heads read ``use_sigmoid`` themselves."""
    if _is(head, 'BBoxHead'):
        return
    sigmoid = getattr(head, 'use_sigmoid_cls', None)
    if sigmoid is not None and sigmoid != loss.use_sigmoid:
        raise ValueError(
            f'{type(head).__name__} reads use_sigmoid={sigmoid} in the config '
            f'of its loss_cls (False when it is absent), but '
            f'{type(loss).__name__} works with use_sigmoid='
            f'{loss.use_sigmoid}: write use_sigmoid={loss.use_sigmoid} there')
    if not loss.use_sigmoid:
        raise ValueError(
            f'{type(head).__name__} would predict by a softmax, which does '
            'not keep the order of a class that was trained: write '
            'use_sigmoid=True in the config of its loss_cls')


def _rule(head: nn.Module) -> str | None:
    """The reason against this head, '' for none, None for an unknown one."""
    for base in type(head).__mro__:
        if base.__module__.startswith('mmdet.') and base.__name__ in RULES:
            reason = RULES[base.__name__]
            mended = getattr(head, 'ranks_in_one_call', False)
            return '' if mended and reason in MENDED else reason
    return None


def _is(head: nn.Module, name: str) -> bool:
    return any(base.__name__ == name for base in type(head).__mro__)


def _on_registration(module: nn.Module, name: str,
                     submodule: nn.Module | None) -> None:
    if name != 'loss_cls':
        return
    if isinstance(submodule, RankingLoss):
        bind(module, submodule)
    elif getattr(submodule, 'is_ranking_loss', False):
        raise ValueError(
            f'{type(submodule).__name__} says is_ranking_loss = True, but '
            f'{type(module).__name__} would not train it as a ranking: '
            'derive it from mmrank.models.losses.RankingLoss and write '
            'ranking_terms(scores, relevance, context)')


def watch_heads() -> None:
    """From now on check every head that takes a ranking loss; idempotent."""
    global _watching
    if not _watching:
        _watching = True
        register_module_module_registration_hook(_on_registration)


_watching = False
