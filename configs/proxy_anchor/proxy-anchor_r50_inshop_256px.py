_base_ = ['./proxy-anchor_r50_inshop.py', '../_base_/datasets/retrieval_256px.py']
train_pipeline = _base_.crops_256px.train
test_pipeline = _base_.crops_256px.test
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
