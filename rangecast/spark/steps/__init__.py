"""The verbs as functions from DataFrame to DataFrame."""
