"""Work that several commands do: answer events, limit rates, apply edits."""
