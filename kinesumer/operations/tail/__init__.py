"""What ``kinesumer tail`` does: one stream read without a group, children last."""
