"""Input tables, as ingest reads them: Parquet, CSV and JSON lines become one stream of rows.

Every row that comes out has a user and a time; rows that cannot be read are counted and left out.
A file is read in pieces, so that its size does not matter. What is in it is personal: errors name
a file and the number of a row, and never what the row holds.

The same file gives the same batches in the same order, so that reading can go on where it stopped.

`source` is where to begin. It opens a file (`files`) with the reader of its format
(`parquet_files`, `csv_files`, `json_lines`), whose rows become those of every table in `columns`
and `times`. `layout` says which columns hold what, `bad_rows` counts what is left out, `refusals`
has the sentences, `sizes` how much is read at once.
"""

from privatekube_kfp.data.tables.bad_rows import DEFAULT_LIMIT, BadRow, BadRows
from privatekube_kfp.data.tables.layout import (
    AMAZON,
    AMAZON_CSV_2014,
    AMAZON_CSV_2018,
    COLUMNS,
    FORMATS,
    LAYOUTS,
    TIME,
    USER,
    Layout,
    layout_named,
)
from privatekube_kfp.data.tables.source import Read, Source

__all__ = [
    "AMAZON",
    "AMAZON_CSV_2014",
    "AMAZON_CSV_2018",
    "COLUMNS",
    "DEFAULT_LIMIT",
    "FORMATS",
    "LAYOUTS",
    "TIME",
    "USER",
    "BadRow",
    "BadRows",
    "Layout",
    "Read",
    "Source",
    "layout_named",
]
