# The baseline: a loss of pytorch-metric-learning under the same budget.
_base_ = './proxy-anchor_small_glyphs.py'
model = dict(head=dict(loss=dict(
    _delete_=True,
    type='mmrank.PytorchMetricLearningLoss',
    loss='ProxyNCALoss')))
optim_wrapper = dict(paramwise_cfg=dict(
    custom_keys={'loss_module.loss.proxies': dict(lr_mult=1. / 3)}))
