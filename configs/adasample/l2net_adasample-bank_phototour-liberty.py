# descriptors refreshed once an epoch: a step costs what HardNet's does
_base_ = 'l2net_adasample_phototour-liberty.py'
model = dict(sampler=dict(mode='bank'))
