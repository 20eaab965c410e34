"""A heap whose items leave at any time gives those that are left in order, and forgets the rest."""

from hypothesis import given
from hypothesis import strategies as st

from privatekube_kfp.core.lazy_heap import LazyHeap


class Heap(LazyHeap[int, int]):
    def __init__(self):
        super().__init__()
        self.here = set()

    def _is_live(self, item):
        return item in self.here


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=200), st.randoms())
def test_what_is_left_comes_in_order(pushes, random):
    heap, keys = Heap(), {}
    for item, (key, leave) in enumerate(pushes):
        keys[item] = key
        heap.here.add(item)
        heap.push(key, item, item)
        if leave:
            heap.here.remove(random.choice(sorted(heap.here)))
            heap.left()
        assert heap.live == len(heap.here)
        assert len(heap._entries) <= 2 * heap.live + 16
    order = []
    while heap.head():
        order.append(heap.pop())
    assert order == sorted(heap.here, key=lambda item: (keys[item], item))
