"""Filters: parsed to boxes (lexer, grammar, compile, regions), and written again (formatting)."""
