_base_ = '../_base_/glyphs_small_20e.py'
model = dict(head=dict(
    num_classes=688,
    loss=dict(type='mmrank.ProxyAnchorLoss', margin=0.1, alpha=32.)))
# of the proxies 1e-3: this network starts from scratch, and learns itself at
# 30 times the rate of the pretrained ones
optim_wrapper = dict(paramwise_cfg=dict(custom_keys={'head.proxies': dict(lr_mult=1. / 3)}))
