# Adam with L2 decay, and batch norm that keeps its affine parameters as well:
# the statistics are FrozenBNHook's. By the names in torchvision's ResNets.
_base_ = './proxy_60e.py'
optim_wrapper = dict(
    optimizer=dict(type='Adam'),
    paramwise_cfg=dict(custom_keys={
        '.bn': dict(lr_mult=0., decay_mult=0.),
        '.downsample.1': dict(lr_mult=0., decay_mult=0.),
    }))
train_cfg = dict(max_epochs=100)
