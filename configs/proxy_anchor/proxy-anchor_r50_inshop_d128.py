_base_ = './proxy-anchor_r50_inshop.py'
model = dict(head=dict(embedding_size=128))
