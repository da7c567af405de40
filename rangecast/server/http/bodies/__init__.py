"""Request bodies: bounded, decompressed and decoded (JSON, NDJSON, CSV, Arrow, Parquet)."""
