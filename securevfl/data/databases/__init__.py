"""Tables of databases and lakes: results of queries, Delta and Iceberg tables."""

from __future__ import annotations

from securevfl.data.databases.dataset_rows import DatasetRows
from securevfl.data.databases.lakehouse import find_table_format, open_lakehouse_table
from securevfl.data.databases.query_rows import QUERY, open_query

__all__ = ["QUERY", "DatasetRows", "find_table_format", "open_lakehouse_table", "open_query"]
