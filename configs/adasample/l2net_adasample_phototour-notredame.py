# AdaSample+*, trained on notredame, tested on liberty and yosemite
_base_ = 'l2net_adasample_phototour-liberty.py'
train_dataloader = dict(dataset=dict(scene='notredame'))
val_dataloader = dict(dataset=dict(scene='liberty'))
test_dataloader = dict(dataset=dict(scene='yosemite'))
