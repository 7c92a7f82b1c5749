# For thousands of classes with few images each: SOP and In-Shop.
_base_ = './proxy_60e.py'
optim_wrapper = dict(optimizer=dict(lr=6e-4))
param_scheduler = dict(step_size=20, gamma=0.25)
