# bbox, dense and query derive from mmdet's heads and need it installed; the
# registry imports the one whose head is asked for (registry.DETECTION_HEADS).
# rules and replaced_loss need no mmdet.
