_base_ = [
    '../_base_/rambo_recall_r50_80e.py',
    '../_base_/datasets/cub200.py',
]
train_pipeline = _base_.squares.train
test_pipeline = _base_.squares.test
# drop_last belongs to the batch sampler
train_dataloader = dict(
    batch_size=128,
    drop_last=False,
    batch_sampler=dict(type='mmrank.ClassBalancedBatchSampler', samples_per_class=4),
    dataset=dict(pipeline=train_pipeline))
val_dataloader = test_dataloader = dict(
    dataset=dict(pipeline=test_pipeline))
model = dict(head=dict(loss=dict(lambda_val=0.2, margin=0.02)))
optim_wrapper = dict(optimizer=dict(lr=5e-06))
