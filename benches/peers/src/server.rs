//! Questions on standard input, answers on standard output.

use std::fs::File;
use std::io::{BufWriter, Write, stdin};
use std::time::Instant;

use crate::Result;

/// A library that can be timed.
pub trait Peer {
    /// Name and version of the library, in one line.
    fn version(&self) -> String;

    /// Executes this many times.
    fn execute(&mut self, times: usize) -> Result<()>;

    /// Executes once into an output that held other bytes, and writes the bytes of the result.
    fn write(&mut self, to: &mut dyn Write) -> Result<()>;
}

/// Answers until the input ends.
pub fn serve(peer: &mut impl Peer) -> Result<()> {
    peer.execute(1)?;
    println!("ready {}", peer.version());
    for line in stdin().lines() {
        match line?.split_once(' ') {
            Some(("run", counts)) => run(peer, counts)?,
            Some(("write", path)) => write(peer, path)?,
            _ => break,
        }
    }
    Ok(())
}

/// `counts` are samples and executions in a sample; answers with nanoseconds an execution, one a sample.
fn run(peer: &mut impl Peer, counts: &str) -> Result<()> {
    let (samples, batch) = counts.split_once(' ').ok_or("run takes two numbers")?;
    let (samples, batch): (usize, usize) = (samples.parse()?, batch.parse()?);
    let mut answer = String::from("times");
    for _ in 0..samples {
        let start = Instant::now();
        peer.execute(batch)?;
        let nanoseconds = start.elapsed().as_nanos() as f64 / batch as f64;
        answer += &format!(" {nanoseconds:.2}");
    }
    println!("{answer}");
    Ok(())
}

fn write(peer: &mut impl Peer, path: &str) -> Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    peer.write(&mut file)?;
    file.flush()?;
    println!("written");
    Ok(())
}
