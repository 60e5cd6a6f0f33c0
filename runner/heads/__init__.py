"""What stands on an encoder: a matrix of classes, scored and trained through proposals."""
