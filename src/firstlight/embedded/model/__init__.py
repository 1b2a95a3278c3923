"""The model: its configuration, its weights, its layers."""
