# Proxy-Anchor's parameters, the paper's for every data set.
_base_ = './embedding_r50.py'
model = dict(
    head=dict(
        loss=dict(type='mmrank.ProxyAnchorLoss', margin=0.1, alpha=32.)))
