# Queries are sought in the gallery, by the official list.
_base_ = './retrieval_224px.py'
dataset_type = 'mmrank.InShopDataset'
data_root = 'data/inshop/'
train_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
val_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
test_dataloader = val_dataloader
val_evaluator = dict(ks=(1, 10, 20, 30, 40, 50))
test_evaluator = val_evaluator
