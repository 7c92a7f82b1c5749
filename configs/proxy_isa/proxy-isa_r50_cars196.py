_base_ = [
    '../_base_/models/embedding_r50_proxy-isa.py',
    '../_base_/datasets/cars196.py',
    '../_base_/schedules/proxy-isa_100e.py',
    '../_base_/retrieval_runtime.py',
]
model = dict(head=dict(num_classes=98, loss=dict(k=0.4)))
train_dataloader = dict(batch_size=128)
default_hooks = dict(checkpoint=dict(save_best='retrieval/MAP@R'))
param_scheduler = dict(step_size=10, gamma=0.5)
custom_hooks = [
    dict(type='mmrank.FrozenBNHook'),
    dict(type='mmrank.RetrievalVisualizationHook'),
]
