"""Reading and writing of files and tables.

file -> files | json_lines -> batch -> records -> rejected rows
result -> writer -> atomic -> durable
"""
