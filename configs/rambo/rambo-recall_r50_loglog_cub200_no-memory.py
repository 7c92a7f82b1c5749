_base_ = './rambo-recall_r50_loglog_cub200.py'
model = dict(head=dict(loss=dict(memory_batches=0)))
