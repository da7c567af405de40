"""OpenAPI description of the server: names, schemas and examples, separate from the handlers.

schemas      schemas of requests and responses
operations   each path and method: its name, parameters, and examples
document     the complete document; FastAPI contributes paths and query parameters
"""
