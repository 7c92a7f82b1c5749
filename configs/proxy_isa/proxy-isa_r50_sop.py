_base_ = [
    '../_base_/models/embedding_r50_proxy-isa.py',
    '../_base_/datasets/sop.py',
    '../_base_/schedules/proxy_60e.py',
    '../_base_/retrieval_runtime.py',
]
model = dict(head=dict(num_classes=11318))
train_dataloader = dict(batch_size=128)
optim_wrapper = dict(optimizer=dict(lr=6e-4))
param_scheduler = dict(step_size=20, gamma=0.25)
custom_hooks = [
    dict(type='mmrank.HeadWarmupHook', epochs=1),
    dict(type='mmrank.RetrievalVisualizationHook'),
]
