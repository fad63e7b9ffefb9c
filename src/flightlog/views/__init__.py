"""Pure folds and renderings that several features share."""
