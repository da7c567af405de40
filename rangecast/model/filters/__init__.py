"""A filter's text to boxes: lexer, grammar, compile, regions; text is the way back."""
