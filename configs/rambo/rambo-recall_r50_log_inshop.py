_base_ = [
    '../_base_/rambo_recall_r50_80e.py',
    '../_base_/datasets/inshop.py',
]
train_pipeline = _base_.squares.train
test_pipeline = _base_.squares.test
# As many batches as the paper's epoch, 4 for each of 253 pairs of
# super-labels. drop_last belongs to the batch sampler
train_dataloader = dict(
    batch_size=128,
    drop_last=False,
    batch_sampler=dict(type='mmrank.SuperLabelBatchSampler', samples_per_class=8, batches_per_pair=4, num_batches=1012),
    dataset=dict(pipeline=train_pipeline))
val_dataloader = test_dataloader = dict(
    dataset=dict(pipeline=test_pipeline))
model = dict(head=dict(loss=dict(lambda_val=0.2, margin=0.05)))
optim_wrapper = dict(optimizer=dict(lr=1e-05))
