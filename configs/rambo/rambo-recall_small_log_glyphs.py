_base_ = [
    '../_base_/models/embedding_small.py',
    '../_base_/datasets/glyphs.py',
    '../_base_/schedules/glyphs_20e.py',
    '../_base_/retrieval_runtime.py',
]
default_hooks = dict(checkpoint=dict(interval=20))
model = dict(head=dict(loss=dict(
    type='mmrank.RaMBORecallLoss',
    weighting='log',
    lambda_val=4.,
    margin=0.02,
    memory_batches=3)))
