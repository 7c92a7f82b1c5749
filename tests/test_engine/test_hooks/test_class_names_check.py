from types import SimpleNamespace

import pytest

from mmrank.engine.hooks import ClassNamesCheckHook


def runner(dataset):
    return SimpleNamespace(
        train_dataloader=SimpleNamespace(dataset=dataset))


def coco(classes, known):
    return SimpleNamespace(
        metainfo=dict(classes=classes), cat_ids=list(range(known)),
        ann_file='ann.json')


def test_a_class_that_the_annotations_lack_is_found_inside_wrappers():
    inner = coco(('cat', 'dgo'), 1)
    wrapped = SimpleNamespace(dataset=SimpleNamespace(
        datasets=[coco(('cat', 'dog'), 2), inner]))
    with pytest.raises(ValueError, match="ann.json knows 1 of the 2.*'dgo'"):
        ClassNamesCheckHook().before_train(runner(wrapped))


def test_right_names_and_unknown_kinds_of_data_sets_pass():
    hook = ClassNamesCheckHook()
    hook.before_train(runner(coco(('cat', 'dog'), 2)))
    hook.before_train(runner(SimpleNamespace(metainfo={})))
    hook.before_train(runner(SimpleNamespace(metainfo=dict(classes=('a',)))))
