//! Matrix products: GFLOP/s of compiled partitions, beside the limit of the machine in the same run.
//!
//! `cargo bench --bench matmul -- [--threads N] [--rounds N] [FILTER]` measures the rows whose names hold the
//! filter. The limit of a product is a loop of multiplications and additions in registers, of f32, of pairs
//! of bf16 or of 8-bit integers, on as many threads; that of few rows is a loop that reads as many bytes as
//! the right operand has, again and again, if that takes longer. A product with an epilogue runs interleaved
//! with the bare one. *weights* are stored in 8 or 4 bits, with a scale for 128 elements of the depth. On one
//! thread there are also the graph `matmul_select`, with its time, and what a call of a small product costs
//! beside its kernel. The crate in `peers/` measures the same rows, with other crates beside them. `--list`
//! prints the names of the rows; `--serve NAME` answers requests about one of them, which
//! `benches/peers/ops.py` sends.

mod products;

fn main() {
    products::run(&[]);
}
