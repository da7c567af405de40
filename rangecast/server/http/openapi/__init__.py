"""The OpenAPI description of the server: names, schemas and examples, apart from the handlers.

schemas      what requests and answers are made of
operations   each path and method: its name, its parameters, an example of both
document     all of it as one document; FastAPI adds what it knows of paths and queries
"""
