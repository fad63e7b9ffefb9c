"""How it looks: pure folds that several rooms share."""
