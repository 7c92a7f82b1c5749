_base_ = './proxy-anchor_r50_sop.py'
model = dict(head=dict(embedding_size=128))
