_base_ = [
    '../_base_/models/embedding_r50_proxy-isa.py',
    '../_base_/datasets/cub200.py',
    '../_base_/schedules/proxy-isa_100e.py',
    '../_base_/retrieval_runtime.py',
]
model = dict(head=dict(num_classes=100))
train_dataloader = dict(batch_size=128)
default_hooks = dict(checkpoint=dict(save_best='retrieval/MAP@R'))
custom_hooks = [
    dict(type='mmrank.FrozenBNHook'),
    dict(type='mmrank.RetrievalVisualizationHook'),
]
