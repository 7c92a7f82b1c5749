_base_ = '../_base_/glyphs_small_20e.py'
model = dict(head=dict(loss=dict(
    type='mmrank.RaMBORecallLoss',
    weighting='log',
    lambda_val=4.,
    margin=0.02,
    memory_batches=3)))
