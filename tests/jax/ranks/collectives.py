"""Every collective of JAX between processes, of every type, compared with NumPy. Prints "said: CASE" for each right
case, and "said: CASE refused: TEXT" if JAX refuses the type."""

import sys

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

jax.config.update("jax_enable_x64", True)
rank, size = jax.process_index(), jax.process_count()
TYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]
TYPES += ["complex64", "complex128", "float16", "bfloat16", "bool"]
COUNT = 12 * size


def numpy_type(name):
    return np.dtype(getattr(ml_dtypes, name) if name == "bfloat16" else name)


def inputs(name, large):
    """Returns the block of each rank: small whole numbers, so that every order of a sum gives the same bits."""
    count = COUNT * (5000 if large else 1)
    blocks = [(np.arange(count) * (r + 3) + 7 * r) % 5 for r in range(size)]
    if name.startswith("complex"):
        blocks = [block + 1j * (block % 3) for block in blocks]
    return [block.astype(numpy_type(name)) for block in blocks]


def on_mesh(function, blocks, mesh, spec, out_spec):
    """Runs `function` on the blocks, one for each process; returns this process's part of the result."""
    whole = jax.make_array_from_process_local_data(NamedSharding(mesh, spec), blocks[rank])
    run = jax.jit(jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=out_spec, check_vma=False))
    return np.asarray(run(whole).addressable_data(0))


def check(case, function, expected, blocks, mesh, spec, out_spec=None):
    try:
        got = on_mesh(function, blocks, mesh, spec, spec if out_spec is None else out_spec)
    except Exception as error:
        print(f"said: {case} refused: {' '.join(str(error).split())[:300]}")
        return
    np.testing.assert_array_equal(got, expected, err_msg=case)
    assert got.dtype == expected.dtype, (case, got.dtype, expected.dtype)
    print(f"said: {case}")


def line(name, large=False):
    mesh, spec, blocks = Mesh(np.array(jax.devices()), "i"), P("i"), inputs(name, large)
    total = np.sum(np.stack(blocks), axis=0, dtype=blocks[0].dtype)
    part = slice(rank * (total.size // size), (rank + 1) * (total.size // size))
    before, after = (rank - 1) % size, f"{name}{' large' if large else ''}"
    checks = {
        "psum": (lambda v: lax.psum(v, "i"), total),
        "psum_scatter": (lambda v: lax.psum_scatter(v, "i", tiled=True), total[part]),
        "all_gather": (lambda v: lax.all_gather(v, "i", tiled=True), np.concatenate(blocks)),
        "ppermute": (lambda v: lax.ppermute(v, "i", [(r, (r + 1) % size) for r in range(size)]), blocks[before]),
        "all_to_all": (
            lambda v: lax.all_to_all(v, "i", 0, 0, tiled=True),
            np.concatenate([block[part] for block in blocks]),
        ),
    }
    if not name.startswith("complex"):
        checks["pmax"] = (lambda v: lax.pmax(v, "i"), np.max(np.stack(blocks), axis=0))
        checks["pmin"] = (lambda v: lax.pmin(v, "i"), np.min(np.stack(blocks), axis=0))
    if name == "bool":
        checks = {key: value for key, value in checks.items() if "psum" not in key}
    for case, (function, expected) in checks.items():
        check(f"{case} {after}", function, expected, blocks, mesh, spec)
    some = blocks[0] if rank == 1 else np.zeros_like(blocks[0])  # rank 0 sends to rank 1 only
    check(f"ppermute to one {after}", lambda v: lax.ppermute(v, "i", [(0, 1)]), some, blocks, mesh, spec)


def grid():
    """Sub-groups: rows and columns of two by two processes, in one program, also in reverse order."""
    blocks = inputs("float32", False)
    for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
        places = np.array(order).reshape(2, 2)
        mesh = Mesh(np.array(jax.devices())[places], ("row", "column"))
        row, column = np.argwhere(places == rank)[0]
        spec = P(("row", "column"))
        in_order = [blocks[r] for r in range(4)]
        rows = sum(blocks[r] for r in places[:, column])
        columns = np.concatenate([blocks[r] for r in places[row]])
        check(f"rows {order}", lambda v: lax.psum(v, "row"), rows, in_order, mesh, spec)
        check(f"columns {order}", lambda v: lax.all_gather(v, "column", tiled=True), columns, in_order, mesh, spec)
        both = np.concatenate([sum(blocks[r] for r in places[:, c]) for c in (0, 1)])
        check(
            f"both {order}",
            lambda v: lax.all_gather(lax.psum(v, "row"), "column", tiled=True),
            both,
            in_order,
            mesh,
            spec,
        )


def by_jit():
    """Collectives that the compiler makes from a matrix product whose factors are divided among the processes."""
    mesh = Mesh(np.array(jax.devices()), "i")
    a, b = np.arange(8.0 * 16).reshape(8, 16) % 7, np.arange(16.0 * 8).reshape(16, 8) % 5
    left = jax.make_array_from_callback(a.shape, NamedSharding(mesh, P(None, "i")), lambda at: a[at])
    right = jax.make_array_from_callback(b.shape, NamedSharding(mesh, P("i", None)), lambda at: b[at])
    product = jax.jit(jnp.matmul, out_shardings=NamedSharding(mesh, P()))(left, right)
    np.testing.assert_array_equal(np.asarray(product.addressable_data(0)), a @ b)
    print("said: jit")


for each in sys.argv[1:] or TYPES:
    line(each)
if not sys.argv[1:]:
    line("float32", large=True)
    by_jit()
    if size == 4:
        grid()
