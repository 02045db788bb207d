//! The rows of `cargo bench --bench matmul`, with other crates beside them: `cargo run --release -- --bench`.
//!
//! Each number of threads is measured in a process of its own. `gemm` and `gemmkit` are told the number by
//! each call, and share a pool of rayon of that size. `matrixmultiply` has no such argument: it reads
//! `MATMUL_NUM_THREADS` when it first multiplies, and takes all cores without the variable, 4 at most.

#[path = "../../products.rs"]
mod products;

use std::process::{Command, ExitCode};

use gemmkit::{MatMut, MatRef};
use products::Peer;

/// The variable by which `matrixmultiply` learns the number of threads.
const MATRIXMULTIPLY_THREADS: &str = "MATMUL_NUM_THREADS";

fn gemm_crate([m, n, k]: [usize; 3], a: &[f32], b: &[f32], to: &mut [f32], threads: usize) {
    let parallelism = if threads == 1 { gemm::Parallelism::None } else { gemm::Parallelism::Rayon(threads) };
    assert!(a.len() == m * k && b.len() == k * n && to.len() == m * n);
    // SAFETY: the slices have the sizes that the strides say.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            to.as_mut_ptr(),
            1,
            n as isize,
            false,
            a.as_ptr(),
            1,
            k as isize,
            b.as_ptr(),
            1,
            n as isize,
            0.0,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
    }
}

fn matrixmultiply_crate([m, n, k]: [usize; 3], a: &[f32], b: &[f32], to: &mut [f32], _: usize) {
    assert!(a.len() == m * k && b.len() == k * n && to.len() == m * n);
    let (k_stride, n_stride) = (k as isize, n as isize);
    // SAFETY: the slices have the sizes that the strides say.
    unsafe {
        matrixmultiply::sgemm(
            m,
            k,
            n,
            1.0,
            a.as_ptr(),
            k_stride,
            1,
            b.as_ptr(),
            n_stride,
            1,
            0.0,
            to.as_mut_ptr(),
            n_stride,
            1,
        );
    }
}

fn gemmkit_crate([m, n, k]: [usize; 3], a: &[f32], b: &[f32], to: &mut [f32], threads: usize) {
    let parallelism =
        if threads == 1 { gemmkit::Parallelism::Serial } else { gemmkit::Parallelism::Rayon(threads) };
    gemmkit::gemm(
        1.0,
        MatRef::from_row_major(a, m, k),
        MatRef::from_row_major(b, k, n),
        0.0,
        MatMut::from_row_major(to, m, n),
        parallelism,
    );
}

fn main() -> ExitCode {
    let told = std::env::var(MATRIXMULTIPLY_THREADS).ok().and_then(|number| number.parse().ok());
    let counts = products::thread_counts();
    if told.is_none_or(|told: usize| counts != [told]) {
        return run_each_alone(&counts);
    }
    products::run(&[
        Peer { name: "gemm", multiply: gemm_crate },
        Peer { name: "gemmkit", multiply: gemmkit_crate },
        Peer { name: "matrixmultiply", multiply: matrixmultiply_crate },
    ]);
    ExitCode::SUCCESS
}

/// Runs this program once for each number of threads.
fn run_each_alone(counts: &[usize]) -> ExitCode {
    let own = std::env::current_exe().expect("the program has a path");
    for threads in counts {
        let number = threads.to_string();
        let status = Command::new(&own)
            .args(std::env::args().skip(1))
            .args(["--threads-only", &number])
            .env(MATRIXMULTIPLY_THREADS, &number)
            .env("RAYON_NUM_THREADS", &number)
            .status();
        if !status.expect("the program starts").success() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
