_base_ = './runtime.py'
default_hooks = dict(checkpoint=dict(max_keep_ckpts=1, save_best='retrieval/R@1', rule='greater'))
# neighbours with right and wrong ones framed, and a plot, after a test
custom_hooks = [dict(type='mmrank.RetrievalVisualizationHook')]
vis_backends = [dict(type='LocalVisBackend')]
visualizer = dict(type='mmrank.RetrievalVisualizer', vis_backends=vis_backends, name='visualizer')
