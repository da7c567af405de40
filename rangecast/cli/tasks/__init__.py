"""Work shared by several commands: answer events, limit rates, apply edits."""
