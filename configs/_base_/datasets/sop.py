# 11,318 classes train, 11,316 test, by the official lists.
_base_ = './retrieval_224px.py'
dataset_type = 'mmrank.StanfordOnlineProductsDataset'
data_root = 'data/Stanford_Online_Products/'
train_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
val_dataloader = dict(dataset=dict(type=dataset_type, data_root=data_root))
test_dataloader = val_dataloader
val_evaluator = dict(ks=(1, 10, 100, 1000))
test_evaluator = val_evaluator
