"""The step `notify`: top-k lists of many interests, kept in buckets on disk."""
