"""Traces: read exactly, and refused with a sentence that names the line."""

import pytest

from privatekube_kfp.core.budget import BASIC, renyi
from privatekube_kfp.core.errors import Invalid
from privatekube_kfp.simulator.traces import read_trace

HEAD = "arrival,start_block,num_blocks,epsilon"
ONE = BASIC.budget((10**12, 0))


@pytest.fixture
def read(tmp_path):
    def reading(text, accounting=BASIC, capacity=ONE, **how):
        path = tmp_path / "trace.csv"
        path.write_text(text)
        return read_trace(path, accounting, capacity, **how)

    return reading


def test_demands_are_read_as_decimals_and_rounded_up(read):
    trace = read(f"{HEAD}\n0.1,0,1,0.1\n0.25,1,2,0.0100000000001\n0.25,0,1,0.1\n")
    assert trace.at.tolist() == [100_000, 250_000, 250_000]
    assert [trace.demands[i].amounts for i in trace.demand] == [
        (10**11, 0),
        (10_000_000_001, 0),
        (10**11, 0),
    ]
    assert len(trace.demands) == 2
    assert len(trace.blocks) == 3


def test_a_byte_order_mark_other_columns_delta_and_weight(read):
    trace = read(f"\ufeff{HEAD},delta,weight,who\n1,0,1,0.1,1e-9,7,ann\n2,0,1,0.1,,,bob\n")
    assert trace.demands[0].amounts == (10**11, 10**9)
    assert trace.demands[1].amounts == (10**11, 0)
    assert trace.weight.tolist() == [7, 1]


def test_renyi_demands_have_a_column_per_order(read):
    orders = renyi(["2", "4"])
    text = "arrival,start_block,num_blocks,rdp_2,rdp_4\n0,0,1,0.1,0.2\n"
    trace = read(text, orders, orders.budget((1, 1)))
    assert trace.demands[0].amounts == (10**11, 2 * 10**11)


def test_nobody_in_it(read):
    assert len(read(f"{HEAD}\n")) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no column 'arrival'; it is empty"),
        ("arrival,start_block,epsilon\n", "no column 'num_blocks'; it has arrival, start_block"),
        (f"{HEAD}\n2,0,1,0.1\n1,0,1,0.1\n", "line 3: it arrives before the line above"),
        (f"{HEAD}\n1,0,1,-0.1\n", "line 2: epsilon '-0.1' is negative"),
        (f"{HEAD}\n1,0,1,nan\n", "line 2: epsilon 'nan' is not a decimal"),
        (f"{HEAD}\n1,0,1,0\n", "line 2: it asks for nothing"),
        (f"{HEAD}\n-1,0,1,0.1\n", "line 2: arrival '-1' is negative"),
        (f"{HEAD}\n1e12,0,1,0.1\n", "absurdly late"),
        (f"{HEAD}\n1,-1,1,0.1\n", "start_block '-1' is not a whole number"),
        (f"{HEAD}\n1,0,0,0.1\n", "num_blocks '0' is not a whole number from 1"),
        (f"{HEAD}\n1,0,1\n", "line 2: it has not as many values"),
        (f"{HEAD}\n1,0,1,0.1,9\n", "line 2: it has not as many values"),
        (f"{HEAD},weight\n1,0,1,0.1,1001\n", "weight '1001' is not a whole number from 1 to 1000"),
        (f'{HEAD}\n1,0,1,"0.1\n', "it is no CSV file"),
    ],
)
def test_bad_traces_are_refused_with_their_line(read, text, said):
    with pytest.raises(Invalid) as refused:
        read(text)
    assert said in refused.value.message
    assert "trace.csv" in refused.value.message


def test_a_file_that_is_no_text(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_bytes(b"\xff\xfe\x00arrival")
    with pytest.raises(Invalid, match="it is no CSV file"):
        read_trace(path, BASIC, ONE)


def test_blocks_that_are_not_there(read):
    with pytest.raises(Invalid, match="pipeline 2 asks for 2 blocks from number 1 on; 2 are there"):
        read(f"{HEAD}\n0,0,1,0.1\n1,1,2,0.1\n", blocks=2)
