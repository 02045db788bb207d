//! The limit of memory and of the widest vectors. For a select, a plain loop that reads both sides; for a
//! graph, copies of as many bytes as its inputs are to as many as its result is. No library stands around
//! either.
#![allow(unsafe_code, reason = "plain loops run on raw memory")]

use std::io::Write;

use rayon::{ThreadPool, ThreadPoolBuilder};
use sterna::DataType;

use crate::Result;
use crate::case::{Case, Operand};
use crate::loops::{BaselineLoop, ReadyLoop};
use crate::server::Peer;
use crate::streams::{CopyStrategy, Streams, Traffic};

const VERSION: &str = "plain loops with the widest vectors";

/// A cache line, at whose start operands begin.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u8; 64]);

fn lines(bytes: usize) -> Vec<Line> {
    vec![Line([0xa5; 64]); bytes.div_ceil(64)]
}

fn width(operand: &Operand) -> Result<usize> {
    Ok(operand.dtype.parse::<DataType>()?.size().ok_or("the type has no size")?)
}

fn bytes(operand: &Operand) -> Result<usize> {
    Ok(operand.dims.iter().product::<i64>() as usize * width(operand)?)
}

fn pool(threads: usize) -> Result<ThreadPool> {
    Ok(ThreadPoolBuilder::new().num_threads((threads - 1).max(1)).build()?)
}

pub struct Select {
    body: ReadyLoop,
    addresses: [*mut u8; 4],
    operands: [Vec<Line>; 4],
    bytes: usize,
    pool: ThreadPool,
    threads: usize,
}

impl Select {
    pub fn new(case: &Case) -> Result<Self> {
        let [cond, then, else_] = case.inputs.as_slice() else {
            return Err("a select has three inputs".into());
        };
        let mut operands =
            [lines(bytes(cond)?), lines(bytes(then)?), lines(bytes(else_)?), lines(bytes(&case.output)?)];
        for (input, operand) in operands[..3].iter_mut().enumerate() {
            let from = case.bytes(input)?;
            let chunks = operand.iter_mut().zip(from.chunks(64));
            chunks.for_each(|(line, chunk)| line.0[..chunk.len()].copy_from_slice(chunk));
        }
        let dims = [cond, then, else_].map(|operand| &operand.dims[..]);
        let all = BaselineLoop::new(width(&case.output)?, &case.output.dims, dims, [None; 4], None);
        let (pool, threads) = (pool(case.threads)?, case.threads);
        let addresses = operands.each_mut().map(|operand| operand.as_mut_ptr().cast::<u8>());
        // SAFETY: the addresses are those of the operands and of the result.
        let body = all.reading_both().fastest_by(|body| unsafe { run(body, addresses, &pool, threads) });
        Ok(Self { body, addresses, operands, bytes: bytes(&case.output)?, pool, threads })
    }
}

/// # Safety
///
/// As [`ReadyLoop::run`].
unsafe fn run(body: &ReadyLoop, addresses: [*mut u8; 4], pool: &ThreadPool, threads: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        match threads {
            1 => body.run(addresses),
            _ => body.run_on(addresses, pool, threads),
        }
    }
}

impl Peer for Select {
    fn version(&self) -> String {
        VERSION.into()
    }

    fn execute(&mut self, times: usize) -> Result<()> {
        for _ in 0..times {
            // SAFETY: the addresses are those of the operands and of the result.
            unsafe { run(&self.body, self.addresses, &self.pool, self.threads) };
        }
        Ok(())
    }

    fn write(&mut self, to: &mut dyn Write) -> Result<()> {
        self.operands[3].fill(Line([0xa5; 64]));
        self.execute(1)?;
        let bytes: Vec<u8> = self.operands[3].iter().flat_map(|line| line.0).take(self.bytes).collect();
        Ok(to.write_all(&bytes)?)
    }
}

pub struct Stream {
    streams: Streams,
    traffic: Traffic,
    strategy: CopyStrategy,
    pool: ThreadPool,
}

impl Stream {
    pub fn new(case: &Case) -> Result<Self> {
        let (mut streams, pool) = (Streams::new(), pool(case.threads)?);
        let traffic = Traffic { read: case.read, written: bytes(&case.output)? };
        let (strategy, _) = streams.fastest(traffic, case.threads, &pool)?;
        Ok(Self { streams, traffic, strategy, pool })
    }
}

impl Peer for Stream {
    fn version(&self) -> String {
        VERSION.into()
    }

    fn execute(&mut self, times: usize) -> Result<()> {
        (0..times).for_each(|_| self.streams.run(self.traffic, self.strategy, &self.pool));
        Ok(())
    }

    fn write(&mut self, _: &mut dyn Write) -> Result<()> {
        Err("it knows nothing of the values".into())
    }
}
