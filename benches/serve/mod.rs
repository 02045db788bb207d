//! Shared by the benches that a script measures beside other libraries: answers to questions on standard
//! input. `benches/peers/turns.py` asks them.
//!
//! `run SAMPLES` is answered by the nanoseconds of an execution, one number a sample; `write ID PATH` by the
//! bytes of a tensor in a file. Anything else is the end.

use std::io::Write;

/// A function that is measured by turns with other libraries.
pub(crate) trait Candidate {
    /// Seconds of one execution, the mean over a sample.
    fn sample(&mut self) -> f64;

    /// The bytes of the tensor with that id.
    fn bytes(&self, id: usize) -> Option<&[u8]>;
}

/// Says that the candidate is ready, with what the script needs to know of it, and answers questions.
pub(crate) fn serve(about: &str, candidate: &mut impl Candidate) -> Result<(), String> {
    println!("ready {about}");
    for line in std::io::stdin().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["run", samples] => {
                let samples: usize = samples.parse().map_err(|_| format!("{samples:?} is no number"))?;
                let times = (0..samples).map(|_| format!(" {:.1}", 1e9 * candidate.sample()));
                println!("times{}", times.collect::<String>());
            }
            ["write", id, path] => {
                let bytes = id.parse().ok().and_then(|id: usize| candidate.bytes(id));
                let bytes = bytes.ok_or(format!("there is no tensor {id}"))?;
                let mut file = std::fs::File::create(path).map_err(|error| error.to_string())?;
                file.write_all(bytes).map_err(|error| error.to_string())?;
                println!("written");
            }
            _ => break,
        }
    }
    Ok(())
}
