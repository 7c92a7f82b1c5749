_base_ = './proxy-anchor_r50_cub200.py'
model = dict(head=dict(embedding_size=64))
