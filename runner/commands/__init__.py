"""What the commands of this package share: how they read words, tell of errors and end."""
