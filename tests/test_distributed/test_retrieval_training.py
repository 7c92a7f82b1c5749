"""Training with validation between the epochs, on one and two processes."""

import tempfile

import torch
import torch.distributed as dist
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.runner import Runner

from tests.test_datasets.trees import make_tree


class Pixels(BaseModel):
    """Embeds an image by its pixels; its weight plays no part."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.seen = []

    def forward(self, inputs, data_samples, mode='loss'):
        if mode == 'loss':
            self.seen.append([s.sample_idx for s in data_samples])
            return dict(loss=self.weight.sum())
        for image, sample in zip(inputs, data_samples):
            sample.pred_embedding = image.float().flatten() - 128
        return data_samples


class Figures(Hook):
    """Keeps the figures of every validation."""

    def __init__(self):
        self.figures = []

    def after_val_epoch(self, runner, metrics=None):
        self.figures.append(metrics)


def loader(root, split, **kwargs):
    return dict(
        num_workers=0,
        dataset=dict(
            type='mmrank.InShopDataset',
            data_root=root,
            split=split,
            pipeline=[
                dict(type='mmrank.LoadImage', mode='L'),
                dict(type='mmrank.ImageTransforms',
                     transforms=[dict(type='Resize', size=(8, 8))]),
                dict(type='mmrank.PackRetrievalInputs')
            ]),
        **kwargs)


def train(root):
    size = dist.get_world_size() if dist.is_initialized() else 1
    model, hook = Pixels(), Figures()
    with tempfile.TemporaryDirectory() as folder:
        Runner(
            model=model,
            work_dir=folder,
            train_dataloader=loader(
                root, 'train', batch_size=4 // size,
                sampler=dict(type='DefaultSampler', shuffle=True),
                batch_sampler=dict(
                    type='mmrank.ClassBalancedBatchSampler',
                    samples_per_class=2)),
            val_dataloader=loader(
                root, 'test', batch_size=2,
                sampler=dict(type='DefaultSampler', shuffle=False)),
            val_evaluator=dict(type='mmrank.RetrievalMetric', ks=(1, 2)),
            optim_wrapper=dict(optimizer=dict(type='SGD', lr=.1)),
            train_cfg=dict(by_epoch=True, max_epochs=2),
            val_cfg=dict(),
            default_hooks=dict(checkpoint=None, logger=None),
            custom_hooks=[hook],
            randomness=dict(seed=1),
            experiment_name=f'validation{size}{id(model)}',
            log_level='ERROR').train()
    return model.seen, hook.figures


def test_in_shop_validation_between_epochs_equals_that_of_one_process(
        processes, tmp_path):
    root = make_tree('inshop', tmp_path / 'inshop', per_class=4)
    seen, figures = train(root)
    assert len(figures) == 2 and 'retrieval/R@2' in figures[0]
    both = processes(2).run(train, root)
    for _, shared in both:
        assert shared == figures
    # the processes' shares joined are the batches of one process
    joined = [a + b for a, b in zip(both[0][0], both[1][0])]
    assert joined == seen
    half = len(seen) // 2
    assert seen[:half] != seen[half:]
