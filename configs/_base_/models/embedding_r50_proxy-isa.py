# Proxy-ISA's parameters for CUB and SOP; the others change k alone. The queue
# fills from epoch 2, positive weights act from epoch 3.
_base_ = './embedding_r50.py'
model = dict(
    head=dict(
        loss=dict(
            type='mmrank.ProxyISALoss',
            margin=0.1,
            alpha=32.,
            k=0.9,
            V=100.,
            tau=1.5,
            h=0.15,
            margin_lambda=0.1,
            memory_size=55000)))
