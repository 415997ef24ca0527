"""The checks of hccl.manage.api and hccl.split.api: their order, and that each raises ValueError."""

import pytest
from hccl.manage import api as manage
from hccl.split import api as split

LONG = "g" * 128


def refused(match, function, *arguments):
    with pytest.raises(ValueError, match=match) as caught:
        function(*arguments)
    assert type(caught.value) is ValueError


GROUP_FUNCTIONS = [
    lambda group: manage.create_group(group, 1, [0]),
    manage.destroy_group,
    manage.get_rank_size,
    manage.get_rank_id,
    manage.get_local_rank_size,
    manage.get_local_rank_id,
    lambda group: manage.get_world_rank_from_group_rank(group, 0),
    lambda group: manage.get_group_rank_from_world_rank(0, group),
    lambda group: split.set_split_strategy_by_idx([0], group),
    lambda group: split.set_split_strategy_by_size([100], group),
    lambda group: split.set_split_strategy_auto(group),
]


@pytest.mark.parametrize("function", GROUP_FUNCTIONS)
def test_group_name(function):
    for wrong in [None, 1, b"name", ["name"]]:
        refused("^group: expected a str, not " + type(wrong).__name__, function, wrong)
    refused("^group: is empty", function, "")
    refused("^group: has 128 characters", function, LONG)


@pytest.mark.parametrize(
    "match, arguments",
    [
        (
            "group",
            (
                1,
                0,
                (),
            ),
        ),  # group is checked first
        ("group", ("", "x", ())),
        ("rank_num: expected an int, not str 'x'", ("g", "x", ())),
        ("rank_num: expected an int, not float 1.0", ("g", 1.0, [0])),
        ("rank_num: is 0", ("g", 0, ())),
        ("rank_num: is -1", ("g", -1, ())),
        ("rank_num: is False", ("g", False, [])),
        ("rank_ids: expected a list, not tuple", ("g", 1, (0,))),
        ("rank_ids: expected a list, not NoneType", ("g", 2, None)),
        ("rank_ids: has 1 ranks, rank_num is 2", ("g", 2, ["x"])),  # the length is checked before the items
        (r"rank_ids\[1\]: expected an int, not str 'x'", ("g", 2, [0, "x"])),
        (r"rank_ids\[0\]: is -1", ("g", 1, [-1])),
        (r"rank_ids\[0\]: is 4294967296", ("g", 1, [1 << 32])),
        (r"rank_ids\[0\]: expected an int, not float", ("g", 2, [0.0, -1])),
    ],
)
def test_create_group(match, arguments):
    refused(match, manage.create_group, *arguments)


def test_bool_is_an_int():
    manage.create_group("kept until the world exists", True, [False])
    manage.destroy_group("kept until the world exists")


@pytest.mark.parametrize(
    "wrong, match", [("0", "expected an int, not str '0'"), (-1, "is -1"), (1.5, "float 1.5")]
)
def test_ranks_of_queries(wrong, match):
    refused("group_rank_id: .*" + match, manage.get_world_rank_from_group_rank, "g", wrong)
    refused("world_rank_id: .*" + match, manage.get_group_rank_from_world_rank, wrong, "g")
    refused("group: is empty", manage.get_world_rank_from_group_rank, "", wrong)
    refused("group: is empty", manage.get_group_rank_from_world_rank, wrong, "")


def test_before_the_world_exists():
    for query in ["rank_size", "rank_id", "local_rank_size", "local_rank_id"]:
        text = query.replace("_", " ")
        refused(rf"get {text} error\. ret\[\d+\]", getattr(manage, f"get_{query}"))
    refused(r"ret\[\d+\]", manage.get_world_rank_from_group_rank, "g", 0)
    refused(r"ret\[\d+\]", manage.get_group_rank_from_world_rank, 0, "g")
    refused("destroy group error :g", manage.destroy_group, "g")


def test_a_name_that_is_no_text():
    refused("group", manage.get_rank_size, "\ud800")
    refused("group", split.set_split_strategy_by_idx, [0], "\ud800")
    refused("group: 'a.x00b'", manage.create_group, "a\0b", 1, [0])


@pytest.mark.parametrize(
    "match, values",
    [
        ("idxList: expected a list, not tuple", (0, 1)),
        ("idxList: is empty", []),
        (r"idxList\[1\]: expected an int, not float 1.0", [2, 1.0]),  # types are checked before the order
        (r"idxList\[0\]: is -1", [-1]),
        (r"idxList\[0\]: is 4294967296", [1 << 32]),
        (r"idxList: must ascend, but \[2\] is 3 after 4", [1, 4, 3]),
        (r"idxList: must ascend, but \[1\] is 1 after 1", [1, 1]),
        (r"idxList: must ascend", [1, True]),
    ],
)
def test_split_by_index(match, values):
    refused(match, split.set_split_strategy_by_idx, values, "g")
    refused("group", split.set_split_strategy_by_idx, values, "")  # group is checked first


@pytest.mark.parametrize(
    "match, values",
    [
        ("dataSizeList: expected a list, not tuple", (100,)),
        ("dataSizeList: expected a list, not int 100", 100),
        ("dataSizeList: is empty", []),
        (r"dataSizeList\[0\]: expected an int or a float, not str", ["100"]),
        (r"dataSizeList\[1\]: is -1", [101, -1]),  # items are checked before the sum
        ("dataSizeList: adds up to 60, not to 100", [20, 20, 20]),
        ("dataSizeList: adds up to 99.99", [50, 49.99]),
        ("dataSizeList: adds up to nan", [float("nan")]),
        ("dataSizeList: adds up to inf", [float("inf")]),
        ("dataSizeList: adds up to", [0.5, 10**400]),
    ],
)
def test_split_by_size(match, values):
    refused(match, split.set_split_strategy_by_size, values, "g")
    refused("group", split.set_split_strategy_by_size, values, LONG)


def test_sums_that_are_100_but_for_rounding():
    for sizes in [
        [14.2] + 6 * [14.3],
        3 * [33.3333] + [0.0001],
        7 * [14.2857],
        [100, 0],
        [99, True],
    ]:
        split.set_split_strategy_by_size(sizes, "g")
