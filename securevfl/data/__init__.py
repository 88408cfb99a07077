"""Party tables, their loaders and encoders, vertical partitions, and named data sets."""

from securevfl.data import datasets
from securevfl.data.categories import Categories
from securevfl.data.features import FeatureEncoder, View
from securevfl.data.limits import TableLimits
from securevfl.data.loaders import from_arrow, from_pandas, read_csv, read_parquet, read_table
from securevfl.data.names import Names
from securevfl.data.overlap import hold_out, label_owners, limited_overlap
from securevfl.data.parties import Parties
from securevfl.data.partition import independent_rows, partition, shared_rows
from securevfl.data.prepare import ColumnPreparation, Preparation, PreparedLine, Scale
from securevfl.data.storage import Storage
from securevfl.data.table import LabelBook, PartyTable

__all__ = [
    "Categories",
    "ColumnPreparation",
    "FeatureEncoder",
    "LabelBook",
    "Names",
    "Parties",
    "PartyTable",
    "Preparation",
    "PreparedLine",
    "Scale",
    "Storage",
    "TableLimits",
    "View",
    "datasets",
    "from_arrow",
    "from_pandas",
    "hold_out",
    "independent_rows",
    "label_owners",
    "limited_overlap",
    "partition",
    "read_csv",
    "read_parquet",
    "read_table",
    "shared_rows",
]
