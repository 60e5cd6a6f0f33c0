"""Methods are what is compared: samplers, losses and models with settings, each under one name."""
