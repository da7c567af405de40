"""The commit pipeline, from a request to its answer.

commands -> admission (state) -> log.append -> apply -> hub (delivery) -> futures
"""
