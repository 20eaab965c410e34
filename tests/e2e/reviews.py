"""Reviews that nobody wrote, in blocks of a place's ledger."""

from privatekube_kfp.accounting import Counter
from privatekube_kfp.cli import main
from privatekube_kfp.core.unlocking import ByPipelines
from privatekube_kfp.data.ingest import ingest
from privatekube_kfp.data.tables import Source
from privatekube_kfp.ledger.streams import Semantic, StreamSpec
from privatekube_kfp.ledger.times import parse_time


def open_shop(place, folder, rows, *semantics):
    """So many reviews of four days, in a stream of each kind."""
    table = folder / "reviews.parquet"
    assert main(["sample", str(table), "--rows", str(rows), "--days", "4"]) == 0
    for semantic in semantics:
        name = "reviews" if semantic is Semantic.EVENT else semantic.value
        counter = None if semantic is Semantic.EVENT else Counter("5", 64)
        place.ledger.create_stream(
            StreamSpec(*(name, "1000", "1e-7", ByPipelines(1)), semantic=semantic, counter=counter)
        )
        ingest(
            *(place.ledger, name, [Source(table)], str(folder / "store" / name)),
            start=parse_time("2018-01-01"),
            until=parse_time("2018-01-05"),
        )
    return place
