_base_ = [
    '../_base_/models/embedding_small.py',
    '../_base_/datasets/glyphs.py',
    '../_base_/schedules/glyphs_10e.py',
    '../_base_/retrieval_runtime.py',
]
default_hooks = dict(checkpoint=dict(interval=10))
model = dict(head=dict(
    num_classes=688,
    loss=dict(type='mmrank.ProxyAnchorLoss', margin=0.1, alpha=32.)))
# the proxies' lr is 0.01, as the authors'
optim_wrapper = dict(paramwise_cfg=dict(custom_keys={'head.proxies': dict(lr_mult=10. / 3)}))
