"""Parsing of filters to boxes (lexer, grammar, compile, regions), and formatting (text)."""
