_base_ = './rambo-recall_r50_log_sop.py'
model = dict(head=dict(loss=dict(memory_batches=0)))
