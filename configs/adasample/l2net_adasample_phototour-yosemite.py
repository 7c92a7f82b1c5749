# AdaSample+*, trained on yosemite, tested on liberty and notredame
_base_ = 'l2net_adasample_phototour-liberty.py'
train_dataloader = dict(dataset=dict(scene='yosemite'))
val_dataloader = dict(dataset=dict(scene='liberty'))
test_dataloader = dict(dataset=dict(scene='notredame'))
