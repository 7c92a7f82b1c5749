_base_ = './runtime.py'
default_hooks = dict(checkpoint=dict(max_keep_ckpts=2))
custom_hooks = [
    # does nothing unless the sampler's mode is 'bank'
    dict(type='mmrank.DescriptorBankHook'),
    # logs the spread of the descriptors, and warns when they collapse
    dict(type='mmrank.DescriptorCollapseHook', interval=50)]
