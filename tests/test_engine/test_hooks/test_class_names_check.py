import json
from types import SimpleNamespace

import pytest
from mmengine.runner import Runner

from mmrank.engine.hooks import ClassNamesCheckHook


def runner(dataset):
    return SimpleNamespace(
        train_dataloader=SimpleNamespace(dataset=dataset))


def coco(folder, classes):
    (folder / 'ann.json').write_text(json.dumps(dict(categories=[
        dict(id=3, name='cat'), dict(id=7, name='dog')])))
    known = [i for i, name in ((3, 'cat'), (7, 'dog')) if name in classes]
    return SimpleNamespace(
        metainfo=dict(classes=classes), cat_ids=known, backend_args=None,
        cat_img_map={3: [0], 7: [0, 1]}, ann_file=str(folder / 'ann.json'))


def test_a_class_that_the_annotations_lack_is_found_inside_wrappers(
        tmp_path):
    wrapped = SimpleNamespace(dataset=SimpleNamespace(datasets=[
        coco(tmp_path, ('cat', 'dog')), coco(tmp_path, ('cat', 'dgo'))]))
    with pytest.raises(ValueError, match="ann.json has no class.*'dgo'"):
        ClassNamesCheckHook().before_train(runner(wrapped))


def test_right_names_and_unknown_kinds_of_data_sets_pass(tmp_path):
    hook = ClassNamesCheckHook()
    hook.before_train(runner(coco(tmp_path, ('cat', 'dog'))))
    hook.before_train(runner(SimpleNamespace(metainfo={})))
    hook.before_train(runner(SimpleNamespace(metainfo=dict(classes=('a',)))))


class XMLDataset:
    """As mmdet's: objects of unlisted classes are left out."""

    ann_subdir = 'Annotations'

    def __init__(self, root, names, classes):
        self.names = names
        self.metainfo = dict(classes=classes)
        self.sub_data_root, self.ann_file = str(root), str(root / 'list.txt')
        (root / 'list.txt').write_text(
            '\n'.join(map(str, range(len(names)))))
        (root / 'Annotations').mkdir()
        for index, name in enumerate(names):
            (root / 'Annotations' / f'{index}.xml').write_text(
                f'<a><object><name>{name}</name></object></a>')

    def __len__(self):
        return len(self.names)

    def get_data_info(self, index):
        name, classes = self.names[index], self.metainfo['classes']
        return dict(
            img_path=__file__, instances=[
                dict(bbox_label=classes.index(name))]
            if name in classes else [])


def of_three_images(root, classes, **loader):
    return runner(Runner.build_dataloader(dict(
        dataset=XMLDataset(root, ['cat', 'bird', 'dog'], classes),
        batch_size=1, num_workers=0, **loader,
        sampler=dict(type='DefaultSampler', shuffle=False))).dataset)


@pytest.mark.parametrize('batches', [1, 9])
def test_an_epoch_of_another_length_changes_no_class_names(tmp_path, batches):
    hook, options = ClassNamesCheckHook(), dict(num_batch_per_epoch=batches)
    (tmp_path / 'wrong').mkdir()
    short = of_three_images(tmp_path, ('cat', 'dog'), **options)
    assert len(short.train_dataloader.dataset) == batches
    hook.before_train(short)
    with pytest.raises(ValueError, match=r"\['dgo'\].*\['bird', 'dog'\]"):
        hook.before_train(
            of_three_images(tmp_path / 'wrong', ('cat', 'dgo'), **options))


def test_a_class_of_images_that_are_left_out_is_no_misspelt_one(
        tmp_path, monkeypatch):
    # as a subset by ``indices``, or a filter of small boxes
    monkeypatch.setattr(XMLDataset, '__len__', lambda self: 1)
    ClassNamesCheckHook().before_train(
        of_three_images(tmp_path, ('cat', 'dog')))
